/** The built program on a real terminal: a pseudo-terminal, and a screen that shows what the user sees. */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import pty from '@lydell/node-pty';
import headless from '@xterm/headless';

const program = fileURLToPath(new URL('../dist/main.js', import.meta.url));

const { NODE_COMPILE_CACHE } = process.env;
/** The processes of tests share what Node compiled. */
const compileCache: Readonly<Record<string, string>> = NODE_COMPILE_CACHE === undefined ? {} : { NODE_COMPILE_CACHE };

export interface PtyOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly columns?: number;
}

export class PtySession {
  readonly #process: pty.IPty;
  readonly #screen: headless.Terminal;
  readonly ended: Promise<{ readonly code: number; readonly signal: number }>;
  /** All that the program wrote, with control sequences. */
  raw = '';
  #onText: () => void = () => {};

  constructor(argv: readonly string[], { env = {}, columns = 100 }: PtyOptions = {}) {
    if (!existsSync(program)) throw new Error('apps/cli/dist/main.js is missing: build @winnow/cli first');
    this.#screen = new headless.Terminal({ cols: columns, rows: 50, scrollback: 1000, allowProposedApi: true });
    const path = process.env['PATH'] ?? '';
    this.#process = pty.spawn(process.execPath, [program, ...argv], {
      ...{ name: env['TERM'] ?? 'xterm-256color', cols: columns, rows: 50 },
      env: { PATH: path, ...compileCache, ...env },
    });
    this.#process.onData((text) => {
      this.raw += text;
      this.#screen.write(text, () => this.#onText());
    });
    this.ended = new Promise((resolve) => {
      // the screen shows what was written last a moment later
      this.#process.onExit(({ exitCode, signal = 0 }) => {
        this.#screen.write('', () => resolve({ code: exitCode, signal }));
      });
    });
  }

  /** What the user sees, without the spaces at the ends of lines. */
  get shown(): string {
    const { active } = this.#screen.buffer;
    const lines = Array.from({ length: active.length }, (_, row) => active.getLine(row)?.translateToString(true) ?? '');
    return lines.join('\n').trimEnd();
  }

  /** The cells of the first line that contains the text. */
  styleOf(text: string): { readonly isBold: boolean; readonly color: number } {
    const { active } = this.#screen.buffer;
    for (let row = 0; row < active.length; row += 1) {
      const line = active.getLine(row);
      const cell = line?.getCell(line.translateToString().indexOf(text));
      if (cell !== undefined)
        return { isBold: cell.isBold() !== 0, color: cell.isFgDefault() ? -1 : cell.getFgColor() };
    }
    throw new Error(`expected ${text} on the screen, got\n${this.shown}`);
  }

  get modes(): { readonly isPasteMarked: boolean } {
    return { isPasteMarked: this.#screen.modes.bracketedPasteMode };
  }

  write(text: string): void {
    this.#process.write(text);
  }

  kill(signal: string): void {
    this.#process.kill(signal);
  }

  /** Resolves when the screen matches. */
  async until(pattern: RegExp | string): Promise<void> {
    const isShown = (): boolean =>
      typeof pattern === 'string' ? this.shown.includes(pattern) : pattern.test(this.shown);
    while (!isShown()) {
      await new Promise<void>((resolve, reject) => {
        this.#onText = resolve;
        void this.ended.then(() => reject(new Error(`the program ended:\n${this.shown}`)));
      });
    }
  }
}
