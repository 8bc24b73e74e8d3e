// Parts of the page that load before they are needed.

/** The pause after the first content, in milliseconds: reads of the page come first. */
const PAUSE = 800;

/** Loads a part while the browser has nothing else to do. A missing file, of an agent of another version, changes nothing until
 * the part is needed. Returns a function that gives up. */
export function ahead(load: () => Promise<unknown>): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  // boot.js loads the page again for a missing file; the user may be writing.
  const hush = (event: Event) => event.stopImmediatePropagation();
  const begin = () => {
    addEventListener('vite:preloadError', hush, true);
    load()
      .catch(() => undefined)
      .finally(() => removeEventListener('vite:preloadError', hush, true));
  };
  timer = setTimeout(() => {
    if ('requestIdleCallback' in window) requestIdleCallback(begin, { timeout: 2000 });
    else begin();
  }, PAUSE);
  return () => clearTimeout(timer);
}
