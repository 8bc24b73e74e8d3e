// Loads the page again if one of its files is missing. Behind a balancer with agents of two versions, the page may come from
// one agent and a request for its files may reach the other one. Files that were found stay in the browser, so further
// attempts succeed. The attempts are limited, with longer pauses. While no agent answers, the page stays: the browser would show
// its own error in place of the page, and would not go on when the agent is back.
(() => {
  const KEY = 'caravanReload';
  const MAX_ATTEMPTS = 24;
  // Attempts that are older than this, in milliseconds, do not count.
  const FORGET_AFTER = 60000;
  // The pause between two requests to an agent that does not answer, in milliseconds.
  const SILENT_PAUSE = 1000;
  const own = document.currentScript.src;
  let isLoading = false;

  /** Makes a number of requests, each until an agent answers it, and loads the page again after a pause. */
  const load = (requests, pause) => {
    fetch(own, { cache: 'no-store' }).then(
      (answer) => {
        if (!answer.ok) setTimeout(load, SILENT_PAUSE, requests, pause);
        else if (requests > 1) load(requests - 1, pause);
        else setTimeout(() => location.reload(), pause);
      },
      () => setTimeout(load, SILENT_PAUSE, requests, pause),
    );
  };

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
    load(1 + (attempts % 2), attempts === 0 ? 0 : Math.min(1000, 50 * 2 ** attempts));
  };

  // The page misses a part that it needs.
  addEventListener('caravan:missing', again);
  // Once the page is complete, elements are for parts that may be loaded ahead, and a user may be writing: the page itself reports
  // those that it needs.
  const isNeeded = (element) =>
    document.readyState !== 'complete' && (element?.tagName === 'SCRIPT' || (element?.tagName === 'LINK' && element.rel !== 'modulepreload'));
  // Failures of elements do not bubble, so they are captured.
  addEventListener('error', (event) => isNeeded(event.target) && again(), true);
})();
