// Parts of the page that load before they are needed.

/** The pause after the first content, in milliseconds: reads of the page come first. */
const PAUSE = 800;

/** Loads a part before it is needed. A missing file, of an agent of another version, changes nothing until then. */
export function preload(load: () => Promise<unknown>): void {
  load().catch(() => undefined);
}

/** Asks boot.js to load the page again, because a part that is needed is missing. */
export function reportMissing(): void {
  dispatchEvent(new Event('caravan:missing'));
}

/** Loads parts while the browser has nothing else to do. Returns a function that gives up. */
export function ahead(...parts: (() => Promise<unknown>)[]): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const begin = () => parts.forEach(preload);
  timer = setTimeout(() => {
    if ('requestIdleCallback' in window) requestIdleCallback(begin, { timeout: 2000 });
    else begin();
  }, PAUSE);
  return () => clearTimeout(timer);
}
