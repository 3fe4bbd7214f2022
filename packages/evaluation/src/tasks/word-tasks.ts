/** Texts of single words: which were common, which most frequent. Ranked instead of recited, so that small models can. */
import type { Rng } from '@winnow/tensor';
import { shuffle } from './wording.js';
import type { RankQuestion, RecallCaseOptions } from './task-types.js';

const words =
  'water stone house night river garden mother window winter summer letter master corner church market horse silver candle paper forest island captain soldier kitchen morning evening village father doctor mountain shadow butter flower carpet pocket dinner needle bottle bridge castle'.split(
    ' ',
  );

type TextOptions = Pick<RecallCaseOptions, 'length' | 'countTokens'>;

/** A few words many times, many words a few times, all in disorder. */
export function commonWords(rng: Rng, options: TextOptions): { context: string; questions: RankQuestion[] } {
  const chosen = shuffle(rng, words).slice(0, 24);
  const [common, rare] = [chosen.slice(0, 4), chosen.slice(4)];
  return rankTask(rng, options, [...common.flatMap((word) => repeated(word, 10)), ...rare], common, rare);
}

/** Words by Zipf's law with exponent 2: the first three are asked for. */
export function frequentWords(rng: Rng, options: TextOptions): { context: string; questions: RankQuestion[] } {
  const chosen = shuffle(rng, words).slice(0, 16);
  const all = chosen.flatMap((word, rank) => repeated(word, Math.max(1, Math.round(64 / (rank + 1) ** 2))));
  return rankTask(rng, options, all, chosen.slice(0, 3), chosen.slice(3));
}

function rankTask(
  rng: Rng,
  { length, countTokens }: TextOptions,
  bag: readonly string[],
  right: readonly string[],
  wrong: readonly string[],
): { context: string; questions: RankQuestion[] } {
  const list: string[] = [];
  for (let total = 0; ;) {
    const round = shuffle(rng, bag);
    const cost = countTokens(` ${say(round)}`);
    if (list.length > 0 && total + cost > length) break;
    list.push(...round);
    total += cost;
  }
  const spaced = (part: readonly string[]): string[] => part.map((word) => ` ${word}`);
  const question = { right: spaced(right), wrong: spaced(wrong) };
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

function repeated(word: string, count: number): string[] {
  return Array.from({ length: count }, () => word);
}
