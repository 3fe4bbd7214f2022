/**
 * BERT's basic tokenizer: splits on whitespace and makes every punctuation mark and CJK ideograph a separate word, as
 * llama.cpp does: all combining marks (not only Mn) count as accents, and a decomposable character is replaced by the
 * first character of its decomposition. `json/normalizer.ts` has the Hugging Face form.
 * https://github.com/ggml-org/llama.cpp/blob/00ad355e009e83abf98f96a6ded7193b95763681/src/llama-vocab.cpp (wpm_session)
 */
import type { SliceCounter, Sliced } from '@winnow/tensor';
import type { IdList } from '../tables/id-list.js';
import { charBit, charClass } from './char-class.js';
import { longLength } from './split.js';
import { TextBuilder } from './text-builder.js';
import type { WordModel } from './words.js';

export interface BertWordOptions {
  readonly lowercase: boolean;
  readonly stripAccents: boolean;
}

/** Splits and normalizes text; the result for each character is cached. */
export class BertWords {
  readonly #options: BertWordOptions;
  // Cached normal form of each non-ASCII code point; '' when the code point is dropped.
  readonly #forms = new Map<number, string>();

  constructor(options: BertWordOptions) {
    this.#options = options;
  }

  /** Encodes each word of a well-formed text. */
  *encode(text: string, model: WordModel, ids: IdList, work: SliceCounter): Sliced<void> {
    let word = '';
    const long = new TextBuilder(); // the beginning of a long word
    const words: string[] = [];
    const endWord = (): void => {
      if (word !== '' || !long.isEmpty) words.push(long.isEmpty ? word : long.take() + word);
      word = '';
    };
    for (let index = 0; index < text.length;) {
      if (words.length >= wordsPerStep) yield* encodeAll(words, model, ids, work);
      if (work.spend(1)) yield;
      const original = text.codePointAt(index)!;
      index += original > 0xffff ? 2 : 1;
      const codePoint = this.#options.stripAccents && original > 127 ? decomposedBase(original) : original;
      const bits = charClass(codePoint);
      if ((bits & charBit.whitespace) !== 0) {
        endWord();
        continue;
      }
      if (codePoint === 0 || codePoint === 0xfffd || (bits & charBit.control) !== 0) continue;
      if (this.#options.stripAccents && (bits & charBit.mark) !== 0) continue;
      const form = this.#form(codePoint);
      const isSymbol = codePoint < 0x7f && (bits & charBit.symbol) !== 0;
      if (isSymbol || (bits & (charBit.punctuation | charBit.chinese)) !== 0) {
        endWord();
        words.push(form);
      } else {
        word += form;
        if (word.length < maxAdded) continue;
        long.add(word);
        word = '';
      }
    }
    endWord();
    yield* encodeAll(words, model, ids, work);
  }

  #form(codePoint: number): string {
    let form = this.#forms.get(codePoint);
    if (form === undefined) {
      form = String.fromCodePoint(codePoint);
      if (this.#options.lowercase) form = String.fromCodePoint(form.toLowerCase().codePointAt(0)!);
      this.#forms.set(codePoint, form);
    }
    return form;
  }
}

/** Characters that are added one by one. */
const maxAdded = 256;
/** Words that are collected before they are encoded. */
const wordsPerStep = 1024;

function* encodeAll(words: string[], model: WordModel, ids: IdList, work: SliceCounter): Sliced<void> {
  for (const word of words) {
    if (word.length > longLength) yield* model.encodeWordSliced(word, ids, work);
    else model.encodeWord(word, ids);
  }
  words.length = 0;
}

const bases = new Map<number, number>();

function decomposedBase(codePoint: number): number {
  let base = bases.get(codePoint);
  if (base === undefined) {
    base = String.fromCodePoint(codePoint).normalize('NFD').codePointAt(0)!;
    bases.set(codePoint, base);
  }
  return base;
}
