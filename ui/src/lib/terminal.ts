// The terminal under the strict policy: xterm writes its colours and sizes into `style` elements, which the policy
// refuses. While a terminal is made, such elements hand their text to constructed style sheets instead.

import { Terminal, type ITerminalOptions } from '@xterm/xterm';

/** Makes a stand-in for a `style` element whose text becomes a constructed style sheet. */
function standIn(sheets: CSSStyleSheet[]): HTMLElement {
  const element = document.createElement('template');
  const sheet = new CSSStyleSheet();
  sheets.push(sheet);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  Object.defineProperty(element, 'textContent', {
    get: () => '',
    set: (text: string) => sheet.replaceSync(text),
  });
  return element;
}

/** Makes a terminal within an element. `close` removes its styles. */
export function makeTerminal(box: HTMLElement, options: ITerminalOptions): { terminal: Terminal; close: () => void } {
  const sheets: CSSStyleSheet[] = [];
  const create = document.createElement;
  const patched = function (this: Document, name: string, more?: ElementCreationOptions): HTMLElement {
    return name.toLowerCase() === 'style' ? standIn(sheets) : create.call(this, name, more);
  };
  document.createElement = patched as typeof document.createElement;
  try {
    const terminal = new Terminal({ cursorBlink: false, fontSize: 13, ...options });
    terminal.open(box);
    return {
      terminal,
      close: () => {
        document.adoptedStyleSheets = document.adoptedStyleSheets.filter((sheet) => !sheets.includes(sheet));
      },
    };
  } finally {
    document.createElement = create;
  }
}
