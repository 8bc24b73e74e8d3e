// Where the focus goes when a dialog closes.

/** Removes the watch of the last dialog. */
let forget: () => void = () => {};

/** Whether an element can have the focus. */
const isUsable = (element: Element) => element.isConnected && !element.matches(':disabled');

/** Returns whether nothing on the page has the focus. */
const isLost = () => document.activeElement === null || document.activeElement === document.body;

/** Sets the focus on the heading of the page, or on its content. */
function rest(): void {
  (document.querySelector<HTMLElement>('h1') ?? document.querySelector<HTMLElement>('main'))?.focus({ preventScroll: true });
}

/** Returns the focus to the element that opened a dialog, else to the heading of the page. What was done in the dialog may remove
 * the opener later, when the page hears of it: then the focus moves on, unless the user has moved it before. */
export function giveBack(opener: Element | null): void {
  forget();
  if (!opener || opener === document.body || !isUsable(opener)) {
    if (isLost()) rest();
    return;
  }
  if (document.activeElement !== opener) (opener as HTMLElement).focus({ preventScroll: true });
  const changes = new MutationObserver(() => {
    if (isUsable(opener)) return;
    // A disabled element keeps the focus in some browsers, where no key reaches it.
    if (isLost() || document.activeElement === opener) rest();
    forget();
  });
  const stop = new AbortController();
  forget = () => {
    changes.disconnect();
    stop.abort();
    forget = () => {};
  };
  changes.observe(document.body, { childList: true, subtree: true, attributes: true, attributeFilter: ['disabled'] });
  const moved = (event: Event) => event.target !== opener && forget();
  document.addEventListener('focusin', moved, { signal: stop.signal });
  document.addEventListener('pointerdown', moved, { signal: stop.signal });
}
