/** Models that encode word by word, after a splitter. */
import type { SliceCounter, Sliced } from '@winnow/tensor';
import { IdList } from '../tables/id-list.js';
import { longLength, type Splitter } from './split.js';
import { TextBuilder } from './text-builder.js';

/** Ids of one span of text, independent of its surroundings. */
export interface WordModel {
  /** For words of at most `longLength` characters. */
  encodeWord(word: string, ids: IdList): void;
  /** For all words. */
  encodeWordSliced(word: string, ids: IdList, work: SliceCounter): Sliced<void>;
}

export function* encodeWord(word: string, model: WordModel, ids: IdList, work: SliceCounter): Sliced<void> {
  if (word.length > longLength) yield* model.encodeWordSliced(word, ids, work);
  else model.encodeWord(word, ids);
  if (work.spend(word.length + 1)) yield;
}

/** Splits text into words and encodes each. */
export function* encodeWords(
  text: string,
  splitter: Splitter,
  model: WordModel,
  ids: IdList,
  work: SliceCounter,
): Sliced<void> {
  const ends = new IdList(16 + (text.length >> 2));
  if (text.length > longLength) yield* splitter.splitSliced(text, ends, work);
  else splitter.split(text, ends);
  let start = 0;
  for (let index = 0; index < ends.length; index++) {
    const end = ends.values[index]!;
    if (end > start) {
      const word = text.slice(start, end);
      if (word.length > longLength) yield* model.encodeWordSliced(word, ids, work);
      else model.encodeWord(word, ids);
      if (work.spend(end - start)) yield;
    }
    start = end;
  }
}

/** A text with each space replaced by one other character. */
export function* replaceSpaces(text: string, mark: string, work: SliceCounter): Sliced<string> {
  const replaced = new TextBuilder();
  for (let start = 0; start < text.length; start += longLength) {
    const parts = text.slice(start, start + longLength).split(' ');
    replaced.add(parts.join(mark));
    if (work.spend(longLength >> 2)) yield;
  }
  return replaced.take();
}
