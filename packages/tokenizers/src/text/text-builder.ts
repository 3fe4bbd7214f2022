/**
 * Joins pieces to a text. Engines keep the sum of two strings as a tree, so that millions of additions would leave a tree of as
 * many nodes, which is flattened, and visited by garbage collections, at once.
 */
import { longLength } from './split.js';

export class TextBuilder {
  #chunks: string[] = [];
  #pieces: string[] = [];
  #length = 0;

  /** @param piece a sum of many strings only if it is shorter than a chunk */
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
