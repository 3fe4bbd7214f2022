/** Reads lines of stdin: with editing and history on a terminal, plain from a pipe. */
import { createInterface, type Interface } from 'node:readline';
import type { CliIo, OutputStream } from './io.js';

export class LineReader {
  readonly #interface: Interface;
  readonly #isTerminal: boolean;
  readonly #output: OutputStream;
  readonly #lines: string[] = [];
  #isClosed = false;
  #waiting: ((line: string | undefined) => void) | undefined;
  /** Takes the next line that is typed, in place of `next`. */
  #asking: ((line: string | undefined) => void) | undefined;

  constructor({ stdin, stdout }: CliIo, isTerminal: boolean, onInterrupt: () => void) {
    this.#isTerminal = isTerminal;
    this.#output = stdout;
    this.#interface = createInterface({
      input: stdin,
      terminal: isTerminal,
      ...(isTerminal ? { output: stdout } : {}),
    });
    // in raw mode the terminal sends Ctrl-C as a key, not as a signal
    this.#interface.on('SIGINT', onInterrupt);
    this.#interface.on('line', (line) => {
      if (this.#asking) this.#asking(line);
      else if (this.#waiting) this.#settle(line);
      else this.#lines.push(line);
    });
    this.#interface.on('close', () => {
      this.#isClosed = true;
      this.#asking?.(undefined);
      this.#settle(undefined);
    });
  }

  /** The next line without its newline; undefined at the end of the input or after `close`. */
  next(prompt: string): Promise<string | undefined> {
    if (this.#lines.length > 0) return Promise.resolve(this.#lines.shift());
    if (this.#isClosed) return Promise.resolve(undefined);
    if (this.#isTerminal) {
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
    if (!this.#isTerminal || this.#waiting === undefined) return;
    this.#clearLine();
    this.#output.write(`\n${notice}\n`);
    this.#interface.prompt();
  }

  close(): void {
    this.#interface.close();
  }

  #clearLine(): void {
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
