/** Reads lines of stdin: with editing and history on a terminal, plain from a pipe. */
import { createInterface, type Interface } from 'node:readline';
import type { HistoryFile } from './history-file.js';
import type { CliIo, OutputStream } from './io.js';

/** What a terminal offers beyond lines. */
export interface LineReaderOptions {
  readonly isTerminal: boolean;
  readonly onInterrupt: () => void;
  /** Any key but Ctrl-C. */
  readonly onKey: () => void;
  /** Completions of a line, and the part of it that they replace. */
  readonly complete: (line: string) => [readonly string[], string];
  /** Lines of earlier runs; gets those of this one. */
  readonly history: Pick<HistoryFile, 'lines' | 'add'> | undefined;
}

/** Bracketed paste: the terminal marks where what is pasted begins and ends. */
const pasteOn = '\u001b[?2004h';
const pasteOff = '\u001b[?2004l';

/** Erases the line of the cursor and what is below. */
const eraseLine = '\r\u001b[J';

interface Key {
  readonly name?: string;
  readonly ctrl?: boolean;
}

export class LineReader {
  readonly #interface: Interface & { isCompletionEnabled?: boolean };
  readonly #output: OutputStream;
  readonly #lines: string[] = [];
  /** Lines of a paste, which become one line with the one after them. */
  #pasted: string[] = [];
  #isPasting = false;
  readonly #options: LineReaderOptions;
  #leaveTerminal: () => void = () => {};
  #isClosed = false;
  #waiting: ((line: string | undefined) => void) | undefined;
  /** Takes the next line that is typed, in place of `next`. */
  #asking: ((line: string | undefined) => void) | undefined;

  constructor({ stdin, stdout, onExit }: CliIo, options: LineReaderOptions) {
    const { isTerminal, onInterrupt, complete, history } = options;
    this.#options = options;
    this.#output = stdout;
    this.#interface = createInterface({
      input: stdin,
      terminal: isTerminal,
      ...(isTerminal ? { output: stdout, completer: (line: string) => complete(line) as [string[], string] } : {}),
      ...(history === undefined ? {} : { history: [...history.lines], removeHistoryDuplicates: true }),
    });
    // in raw mode the terminal sends Ctrl-C as a key, not as a signal
    this.#interface.on('SIGINT', onInterrupt);
    this.#interface.on('history', (lines: string[]) => {
      if (this.#asking !== undefined) lines.shift();
      else if (lines[0] !== undefined) history?.add(lines[0]);
    });
    this.#interface.on('line', (line) => this.#take(line));
    this.#interface.on('close', () => {
      this.#isClosed = true;
      this.#leaveTerminal();
      this.#asking?.(undefined);
      this.#settle(undefined);
    });
    if (!isTerminal) return;
    stdin.on('keypress', this.#onKey);
    stdout.write(pasteOn);
    const restore = (): void => void stdout.write(pasteOff);
    const unsubscribe = onExit(restore);
    this.#leaveTerminal = () => {
      this.#leaveTerminal = () => {};
      unsubscribe();
      stdin.off('keypress', this.#onKey);
      restore();
    };
  }

  readonly #onKey = (_text: unknown, { name, ctrl }: Key): void => {
    if (!(ctrl === true && name === 'c')) this.#options.onKey();
    if (name !== 'paste-start' && name !== 'paste-end') return;
    this.#isPasting = name === 'paste-start';
    this.#interface.isCompletionEnabled = !this.#isPasting; // tabs of a paste are text
  };

  #take(line: string): void {
    if (this.#isPasting) {
      this.#pasted.push(line);
      return;
    }
    const lines = this.#pasted.length > 0 && line === '' ? this.#pasted : [...this.#pasted, line];
    const whole = lines.join('\n');
    this.#pasted = [];
    if (this.#asking) this.#asking(whole);
    else if (this.#waiting) this.#settle(whole);
    else this.#lines.push(whole);
  }

  /** The next line without its newline, or the lines of a paste; undefined at the end of the input or after `close`. */
  next(prompt: string): Promise<string | undefined> {
    if (this.#lines.length > 0) return Promise.resolve(this.#lines.shift());
    if (this.#isClosed) return Promise.resolve(undefined);
    if (this.#options.isTerminal) {
      this.#interface.setPrompt(prompt);
      this.#interface.prompt();
    }
    return new Promise((resolve) => {
      this.#waiting = resolve;
    });
  }

  /**
   * The answer to a question on a terminal: a line that is typed after the question. Lines that were typed before it stay
   * messages, and the beginning of one is dropped. Undefined at the end of the input.
   * @throws the reason of the signal
   */
  async ask(question: string, signal: AbortSignal): Promise<string | undefined> {
    await new Promise((resolve) => void setImmediate(resolve)); // reads what is waiting
    signal.throwIfAborted();
    if (this.#isClosed) return undefined;
    this.#clearLine();
    this.#interface.setPrompt(question);
    this.#interface.prompt();
    const aborted = new AbortController();
    try {
      return await new Promise((resolve, reject) => {
        this.#asking = resolve;
        signal.addEventListener('abort', () => reject(signal.reason as Error), { signal: aborted.signal });
      });
    } finally {
      this.#asking = undefined;
      aborted.abort();
    }
  }

  /** Clears the current input line, prints a message and prompts again. */
  restartLine(notice: string): void {
    if (!this.#options.isTerminal || this.#waiting === undefined) return;
    this.#clearLine();
    this.#output.write(`\n${notice}\n`);
    this.#interface.prompt();
  }

  /** Writes a notice above the line that is typed. */
  interject(write: () => void): void {
    const isTyping = this.#options.isTerminal && (this.#waiting ?? this.#asking) !== undefined;
    if (isTyping) this.#output.write(eraseLine);
    write();
    if (isTyping) this.#interface.prompt(true);
  }

  close(): void {
    this.#interface.close();
  }

  #clearLine(): void {
    this.#pasted = [];
    if (this.#interface.line === '') return;
    this.#interface.write(null, { ctrl: true, name: 'e' });
    this.#interface.write(null, { ctrl: true, name: 'u' });
  }

  #settle(line: string | undefined): void {
    const waiting = this.#waiting;
    this.#waiting = undefined;
    waiting?.(line);
  }
}
