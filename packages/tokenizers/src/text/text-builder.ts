/**
 * Joins pieces to a text. Engines represent concatenated strings as a tree, so millions of concatenations would build a tree of
 * as many nodes, which is flattened, and scanned by garbage collections, all at once.
 */
import { longLength } from './split.js';

export class TextBuilder {
  #chunks: string[] = [];
  #pieces: string[] = [];
  #length = 0;

  /** @param piece may be a concatenation of many strings only if it is shorter than a chunk */
  add(piece: string): void {
    this.#pieces.push(piece);
    this.#length += piece.length;
    if (this.#length >= longLength || this.#pieces.length >= longLength) this.#flush();
  }

  get isEmpty(): boolean {
    return this.#chunks.length === 0 && this.#pieces.length === 0;
  }

  /** The text so far; the next one starts empty. */
  take(): string {
    this.#flush();
    const text = this.#chunks.join('');
    this.#chunks = [];
    return text;
  }

  #flush(): void {
    this.#chunks.push(this.#pieces.join(''));
    this.#pieces = [];
    this.#length = 0;
  }
}
