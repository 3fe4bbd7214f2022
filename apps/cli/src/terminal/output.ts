/** Writes to stdout and stderr: waits for a slow reader, and detects a closed one. */
import { once } from 'node:events';
import { OutputClosedError } from '../errors/errors.js';
import { fitLines } from './format.js';
import type { OutputStream } from './io.js';
import { printable } from '../errors/printable.js';

export class Output {
  readonly isTerminal: boolean;
  readonly #stream: OutputStream;
  #failure: Error | undefined;
  readonly #onError = (error: Error): void => {
    this.#failure = (error as { code?: unknown }).code === 'EPIPE' ? new OutputClosedError() : error;
  };

  constructor(stream: OutputStream) {
    this.#stream = stream;
    this.isTerminal = stream.isTTY === true;
    stream.on('error', this.#onError);
  }

  /**
   * Resolves when the stream accepts more data. A terminal gets text without control characters, a file or a program all
   * of them.
   * @throws {OutputClosedError} when its reader has closed it
   */
  write(data: string | Uint8Array): Promise<void> {
    return this.#send(this.isTerminal && typeof data === 'string' ? printable(data) : data);
  }

  /** Writes a text with control sequences for a terminal, in which text of files and models is `printable`. */
  writeStyled(text: string): Promise<void> {
    return this.#send(text);
  }

  /**
   * Writes tables: on a terminal, lines end at its right edge instead of wrapping. Control characters are removed from
   * all of them, even in pipes, because the output of `| less` reaches a terminal, too.
   */
  writeTables(tables: string): Promise<void> {
    const text = printable(tables);
    return this.write(this.isTerminal ? fitLines(text, this.#stream.columns ?? 80) : text);
  }

  /** Resolves when all output has been flushed. */
  async flush(): Promise<void> {
    this.#check();
    await new Promise<void>((resolve) => {
      this.#stream.write('', () => resolve());
    });
    this.#check();
  }

  async #send(data: string | Uint8Array): Promise<void> {
    this.#check();
    if (data.length === 0) return;
    if (!this.#stream.write(data)) await this.#drained();
    this.#check();
  }

  async #drained(): Promise<void> {
    try {
      await once(this.#stream, 'drain');
    } catch (error) {
      if (this.#failure === undefined) throw error;
    }
  }

  #check(): void {
    if (this.#failure) throw this.#failure;
    if (this.#stream.destroyed || this.#stream.writableEnded) throw new OutputClosedError();
  }
}
