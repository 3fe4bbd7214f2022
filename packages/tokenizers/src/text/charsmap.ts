/**
 * SentencePiece's precompiled normalization table: a double-array trie over UTF-8 bytes from source to replacement.
 * Layout: u32 size of the trie in bytes, the trie (u32 units, little-endian), then replacements ending in a zero byte.
 * Unit: bits 0-7 label (with bit 31: a value), bit 8 has a value child, bit 9 wide offset, bits 10-30 offset.
 * https://github.com/google/sentencepiece/blob/273449044caa593c2fd7ef7550cac3f7d0ab4f84/src/normalizer.cc
 */
import type { FormatError } from '@winnow/tensor';

/** A match in the table for the bytes at a position. */
export interface CharsmapMatch {
  /** Number of bytes replaced, 0 for no match. */
  length: number;
  /** Half-open range of the replacement in `Charsmap.bytes`. */
  start: number;
  end: number;
}

export class Charsmap {
  /** Replacements, each ending in a zero byte. */
  readonly bytes: Uint8Array;
  readonly #units: Uint32Array;

  readonly #error: (message: string) => FormatError;

  /**
   * @param error makes an error that names the file and field of the table
   * @throws FormatError when the sizes do not fit the table
   */
  constructor(table: Uint8Array, error: (message: string) => FormatError) {
    this.#error = error;
    if (table.length < 4) throw this.#error(`expected at least 4 bytes, found ${table.length}`);
    const view = new DataView(table.buffer, table.byteOffset, table.byteLength);
    const trieSize = view.getUint32(0, true);
    if (trieSize % 4 !== 0 || trieSize + 4 >= table.length) {
      throw this.#error(`expected a trie of whole 4-byte units within ${table.length} bytes, found ${trieSize} bytes`);
    }
    this.#units = new Uint32Array(trieSize / 4);
    for (let index = 0; index < this.#units.length; index++) this.#units[index] = view.getUint32(4 + 4 * index, true);
    this.bytes = table.slice(4 + trieSize);
    if (this.bytes.at(-1) !== 0) throw this.#error('expected the last replacement to end in a zero byte');
  }

  /**
   * Looks up the bytes of `text` from `start`.
   * @param longest take the longest match (SentencePiece, llama.cpp) instead of the shortest (Hugging Face)
   * @throws FormatError when the trie points outside itself
   */
  match(text: Uint8Array, start: number, end: number, longest: boolean, out: CharsmapMatch): void {
    out.length = 0;
    if (this.#units.length === 0) return;
    let node = offsetOf(this.#unit(0));
    let value = -1;
    for (let index = start; index < end; index++) {
      const label = text[index]!;
      if (label === 0) break;
      node ^= label;
      const unit = this.#unit(node);
      if ((unit & 0x800000ff) >>> 0 !== label) break;
      node ^= offsetOf(unit);
      if (((unit >>> 8) & 1) === 0) continue;
      value = this.#unit(node) & 0x7fffffff;
      out.length = index + 1 - start;
      if (!longest) break;
    }
    if (out.length === 0) return;
    if (value >= this.bytes.length) {
      throw this.#error(`expected a replacement below byte ${this.bytes.length}, found ${value}`);
    }
    out.start = value;
    out.end = this.bytes.indexOf(0, value);
  }

  #unit(index: number): number {
    const unit = this.#units[index >>> 0];
    if (unit === undefined) {
      throw this.#error(`expected a trie node below ${this.#units.length}, found ${index >>> 0}`);
    }
    return unit;
  }
}

function offsetOf(unit: number): number {
  return (unit >>> 10) << ((unit & 0x200) >>> 6);
}
