/** Normalization for GGUF unigram vocabularies: the precompiled table, then spaces as U+2581. */
import type { SliceCounter, Sliced } from '@winnow/tensor';
import { Trie } from '../tables/trie.js';
import type { Charsmap } from './charsmap.js';
import { longLength } from './split.js';
import { TextBuilder } from './text-builder.js';
import { replaceSpaces } from './words.js';

export interface UnigramNormalizerOptions {
  readonly charsmap: Charsmap | undefined;
  /** Words that the table must not touch. */
  readonly userDefined: readonly string[];
  readonly addSpacePrefix: boolean;
  /** Collapse runs of spaces and trim both ends. */
  readonly removeExtraWhitespaces: boolean;
}

const SPACE_MARK = '\u2581';

export class UnigramNormalizer {
  readonly #options: UnigramNormalizerOptions;
  readonly #userDefined = new Trie();

  constructor(options: UnigramNormalizerOptions) {
    this.#options = options;
    options.userDefined.forEach((text, index) => this.#userDefined.add(text, index));
  }

  /** @throws FormatError when the table turns out to be malformed */
  *normalize(text: string, work: SliceCounter): Sliced<string> {
    const mapped = yield* this.#map(text, work);
    const { addSpacePrefix, removeExtraWhitespaces } = this.#options;
    if (!removeExtraWhitespaces) {
      const marked = yield* replaceSpaces(mapped, SPACE_MARK, work);
      // The prefix is added before the first non-space character; a text of spaces gets none.
      const first = /[^ ]/u.exec(mapped)?.index ?? -1;
      return addSpacePrefix && first >= 0 ? marked.slice(0, first) + SPACE_MARK + marked.slice(first) : marked;
    }
    const out = new TextBuilder();
    let isInWord = false;
    for (let start = 0; start < mapped.length; start += longLength) {
      for (const [index, part] of mapped
        .slice(start, start + longLength)
        .split(' ')
        .entries()) {
        if (index > 0) isInWord = false;
        if (part === '') continue;
        out.add(isInWord ? part : SPACE_MARK + part);
        isInWord = true;
      }
      if (work.spend(longLength >> 2)) yield;
    }
    return out.take();
  }

  *#map(text: string, work: SliceCounter): Sliced<string> {
    const charsmap = this.#options.charsmap;
    if (charsmap === undefined || text.length === 0) return text;
    const out: string[] = [];
    let start = 0;
    // Text between user-defined words is mapped by the table.
    for (let index = 0; index < text.length;) {
      if (work.spend(1)) yield;
      const size = this.#userDefined.longestMatch(text, index);
      if (size === 0) {
        index++;
        continue;
      }
      if (index > start) out.push(yield* applyCharsmap(charsmap, text.slice(start, index), work));
      out.push(text.slice(index, index + size));
      index += size;
      start = index;
    }
    if (start < text.length) out.push(yield* applyCharsmap(charsmap, text.slice(start), work));
    return out.join('');
  }
}

/** Repeatedly replaces the longest matching prefix; characters that are not in the table are kept. */
function* applyCharsmap(charsmap: Charsmap, text: string, work: SliceCounter): Sliced<string> {
  const bytes = new TextEncoder().encode(text);
  let out = new Uint8Array(bytes.length + 16);
  let size = 0;
  const match = { length: 0, start: 0, end: 0 };
  const append = (source: Uint8Array, start: number, end: number): void => {
    if (size + end - start > out.length) {
      const grown = new Uint8Array(2 * (size + end - start));
      grown.set(out);
      out = grown;
    }
    for (let index = start; index < end; index++) out[size++] = source[index]!;
  };
  for (let at = 0; at < bytes.length;) {
    if (work.spend(1)) yield;
    charsmap.match(bytes, at, bytes.length, true, match);
    if (match.length > 0) {
      append(charsmap.bytes, match.start, match.end);
      at += match.length;
    } else {
      const end = at + utf8Length(bytes[at]!);
      append(bytes, at, end);
      at = end;
    }
  }
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(out.subarray(0, size));
}

function utf8Length(lead: number): number {
  return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}
