import { expect, test } from 'vitest';
import { IdList } from '../tables/id-list.js';
import { patternSplitter } from './split.js';

/** Fails instead of looping forever. */
class Bounded extends RegExp {
  #numRuns = 0;
  override exec(text: string): RegExpExecArray | null {
    if (++this.#numRuns > 100) throw new Error('the pattern is applied again and again');
    return super.exec(text);
  }
}

test('an empty match advances by a whole character', () => {
  const ends = new IdList();
  patternSplitter(new Bounded('x*', 'gu')).split('\u{1f30a}x\u{1f30a}\u{1f30a}xx', ends);
  expect([...ends.toArray()]).toEqual([2, 3, 5, 7, 9]);
});
