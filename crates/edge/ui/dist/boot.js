// Loads the page again if one of its files is missing. Behind a balancer with agents of two versions, the page may come from
// one agent and a request for its files may reach the other one. Files that were found stay in the browser, so further
// attempts succeed. The attempts are limited, with longer pauses.
(() => {
  const KEY = 'caravanReload';
  const MAX_ATTEMPTS = 24;
  // Attempts that are older than this, in milliseconds, do not count.
  const FORGET_AFTER = 60000;
  const own = document.currentScript.src;
  let isLoading = false;

  const again = () => {
    if (isLoading) return;
    let before = { attempts: 0, at: 0 };
    try {
      before = JSON.parse(sessionStorage.getItem(KEY)) ?? before;
    } catch {
      // The entry is not ours, or there is no storage.
    }
    const now = Date.now();
    const attempts = now - before.at < FORGET_AFTER ? before.attempts : 0;
    if (attempts >= MAX_ATTEMPTS) return;
    try {
      sessionStorage.setItem(KEY, JSON.stringify({ attempts: attempts + 1, at: now }));
    } catch {
      // Without storage the attempts cannot be counted.
      return;
    }
    isLoading = true;
    // A balancer that alternates would answer the same requests in the same way again: one more request changes the turn.
    if (attempts % 2 === 1) fetch(own, { cache: 'no-store' }).catch(() => undefined);
    setTimeout(() => location.reload(), attempts === 0 ? 0 : Math.min(1000, 50 * 2 ** attempts));
  };

  addEventListener('vite:preloadError', again);
  // A file that is loaded ahead is not needed yet: if it is needed later, its script fails.
  const isNeeded = (element) => element?.tagName === 'SCRIPT' || (element?.tagName === 'LINK' && element.rel !== 'modulepreload');
  // Failures of elements do not bubble, so they are captured.
  addEventListener('error', (event) => isNeeded(event.target) && again(), true);
})();
