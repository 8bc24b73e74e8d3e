// Light, dark, or as the system has it.

export type Choice = 'light' | 'dark' | 'system';

const KEY = 'caravanTheme';

function read(): Choice {
  const kept = localStorage.getItem(KEY);
  return kept === 'light' || kept === 'dark' ? kept : 'system';
}

const SYSTEM = matchMedia('(prefers-color-scheme: dark)');

class Theme {
  choice = $state<Choice>(read());
  private isSystemDark = $state(SYSTEM.matches);

  constructor() {
    SYSTEM.addEventListener('change', (event) => (this.isSystemDark = event.matches));
  }

  /** Whether the page is dark. */
  get isDark(): boolean {
    return this.choice === 'system' ? this.isSystemDark : this.choice === 'dark';
  }

  choose(choice: Choice): void {
    this.choice = choice;
    if (choice === 'system') localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, choice);
    apply(choice);
  }
}

function apply(choice: Choice): void {
  document.documentElement.dataset.theme = choice;
}

export const theme = new Theme();
apply(theme.choice);
