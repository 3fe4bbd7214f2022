/** Shows reasoning dimmed on a terminal, and leaves it out of pipes and files, which get the answer alone. */
import type { CliIo } from './io.js';

const dim = '\u001b[2m';
const normal = '\u001b[22m';

export class ReasoningOutput {
  readonly #write: (text: string) => Promise<void>;
  readonly #isTerminal: boolean;
  readonly #hasColors: boolean;
  #isOpen = false;

  /** NO_COLOR (https://no-color.org) and terminals without styles get a heading instead. */
  constructor(write: (text: string) => Promise<void>, { stdout, env }: Pick<CliIo, 'stdout' | 'env'>) {
    this.#write = write;
    this.#isTerminal = stdout.isTTY === true;
    this.#hasColors = (env['NO_COLOR'] ?? '') === '' && env['TERM'] !== 'dumb';
  }

  async write(piece: string): Promise<void> {
    if (!this.#isTerminal) return;
    if (!this.#isOpen && !this.#hasColors) await this.#write('(reasoning)\n');
    this.#isOpen = true;
    await this.#write(this.#hasColors ? `${dim}${piece}${normal}` : piece);
  }

  /** The answer follows, or nothing more. */
  async end(): Promise<void> {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    await this.#write(this.#hasColors ? '\n\n' : '\n(answer)\n');
  }
}
