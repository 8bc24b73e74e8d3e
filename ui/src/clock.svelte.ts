// The time that ages are measured by: one timer for the page, which rests while the page is hidden.

class Clock {
  now = $state(Date.now());
}

export const clock = new Clock();

setInterval(() => {
  if (!document.hidden) clock.now = Date.now();
}, 1000);
document.addEventListener('visibilitychange', () => {
  if (!document.hidden) clock.now = Date.now();
});
