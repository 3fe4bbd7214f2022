/** Common-word and frequent-word tasks. Words are ranked instead of recited, so that small models can do them. */
import type { Rng } from '@winnow/tensor';
import { shuffle } from './wording.js';
import type { RankQuestion, RecallCaseOptions } from './task-types.js';

const words = (
  'water stone house night river garden mother window winter summer letter master corner church market ' +
  'horse silver candle paper forest island captain soldier kitchen morning evening village father doctor ' +
  'mountain shadow butter flower carpet pocket dinner needle bottle bridge castle'
).split(' ');

type TextOptions = Pick<RecallCaseOptions, 'length' | 'countTokens'>;

/** A few words many times, many words once, shuffled. */
export function commonWords(rng: Rng, options: TextOptions): { context: string; questions: RankQuestion[] } {
  const chosen = shuffle(rng, words).slice(0, 20);
  return rankTask(rng, options, chosen, 4, 2, (rank, scale) => (rank < 4 ? scale : 1));
}

/** Words by Zipf's law with exponent 2: the first three are queried. */
export function frequentWords(rng: Rng, options: TextOptions): { context: string; questions: RankQuestion[] } {
  const chosen = shuffle(rng, words).slice(0, 12);
  return rankTask(rng, options, chosen, 3, 18, (rank, scale) => Math.max(1, Math.round(scale / (rank + 1) ** 2)));
}

/**
 * @param minScale the smallest scale at which every right word occurs more often than any wrong one
 * @param countOf number of occurrences of the word of a rank; the largest scale that fits is used
 */
function rankTask(
  rng: Rng,
  { length, countTokens }: TextOptions,
  chosen: readonly string[],
  numRight: number,
  minScale: number,
  countOf: (rank: number, scale: number) => number,
): { context: string; questions: RankQuestion[] } {
  const costs = chosen.map((word) => countTokens(` ${say([word])}`));
  const costOf = (scale: number): number => costs.reduce((sum, cost, rank) => sum + cost * countOf(rank, scale), 0);
  let scale = minScale;
  while (costOf(scale + 1) <= length) scale++;
  const list = shuffle(
    rng,
    chosen.flatMap((word, rank) => Array.from({ length: countOf(rank, scale) }, () => word)),
  );
  const spaced = (part: readonly string[]): string[] => part.map((word) => ` ${word}`);
  const question = { right: spaced(chosen.slice(0, numRight)), wrong: spaced(chosen.slice(numRight)) };
  return {
    context: say(list),
    questions: ['\n\nThe word is', '\n\nOnce more: The word is', '\n\nAgain: The word is'].map((prompt) => ({
      prompt,
      ...question,
    })),
  };
}

function say(list: readonly string[]): string {
  return list.map((word) => `The word is ${word}.`).join(' ');
}
