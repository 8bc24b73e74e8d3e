// Light, dark, or as the system has it.

export type Choice = 'light' | 'dark' | 'system';

const KEY = 'caravanTheme';

function read(): Choice {
  const kept = localStorage.getItem(KEY);
  return kept === 'light' || kept === 'dark' ? kept : 'system';
}

class Theme {
  choice = $state<Choice>(read());

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
