// Work that is done after the browser has drawn.

/** Calls a function once the browser has drawn and has nothing else to do, and at the latest after `most` milliseconds. Returns a
 * function that gives up. */
export function later(act: () => void, most: number): () => void {
  let isDue = true;
  const once = () => {
    if (isDue) act();
    isDue = false;
  };
  const late = setTimeout(once, most);
  const frame = requestAnimationFrame(() => {
    if ('requestIdleCallback' in window) requestIdleCallback(once);
    else setTimeout(once);
  });
  return () => {
    isDue = false;
    clearTimeout(late);
    cancelAnimationFrame(frame);
  };
}
