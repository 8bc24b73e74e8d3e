// What the user has set for this browser. Names that Nomad's page uses keep its meaning.

type Flag = 'keys' | 'wrap' | 'reader' | 'live';

const KEPT: Record<Flag, { name: string; usual: boolean }> = {
  keys: { name: 'keyboardNavEnabled', usual: true },
  wrap: { name: 'nomadShouldWrapCode', usual: false },
  reader: { name: 'caravanAccessibleTerminal', usual: false },
  live: { name: 'nomadLiveUpdateJobsIndex', usual: true },
};

function read(flag: Flag): boolean {
  const { name, usual } = KEPT[flag];
  const text = localStorage.getItem(name);
  return text === null ? usual : text === 'true';
}

class Settings {
  /** Whether keys outside of fields do something. */
  keys = $state(read('keys'));
  /** Whether long lines of logs and files are wrapped. */
  wrap = $state(read('wrap'));
  /** Whether terminals are readable for screen readers. */
  reader = $state(read('reader'));
  /** Whether the list of jobs changes while the user looks at it. */
  live = $state(read('live'));

  set(flag: Flag, value: boolean): void {
    this[flag] = value;
    const { name, usual } = KEPT[flag];
    if (value === usual) localStorage.removeItem(name);
    else localStorage.setItem(name, String(value));
  }
}

export const settings = new Settings();

// Another tab changed a setting.
addEventListener('storage', (event) => {
  for (const [flag, { name }] of Object.entries(KEPT) as [Flag, { name: string }][]) {
    if (event.key === name) settings[flag] = read(flag);
  }
});
