/** Models that encode word by word, after a splitter. */
import { IdList } from '../tables/id-list.js';
import type { Splitter } from './split.js';

/** Ids of one span of text, independent of its surroundings. */
export interface WordModel {
  encodeWord(word: string, ids: IdList): void;
}

/** Splits text into words and encodes each. */
export function encodeWords(text: string, splitter: Splitter, model: WordModel, ids: IdList): void {
  const ends = new IdList(16 + (text.length >> 2));
  splitter(text, ends);
  let start = 0;
  for (let index = 0; index < ends.length; index++) {
    const end = ends.values[index]!;
    if (end > start) model.encodeWord(text.slice(start, end), ids);
    start = end;
  }
}
