/** The two wordings of facts and questions, and the keys of facts. */
import type { Rng } from '@winnow/tensor';
import type { TaskForm } from './task-types.js';

export interface Wording {
  /** States that a key has a value. */
  fact(key: string, value: string): string;
  /** Asks for the value, up to the position where it begins. */
  question(key: string): string;
  /** Continues an answer with the next key. */
  next(key: string): string;
  value(rng: Rng): string;
}

const digits = (rng: Rng, count: number): string => Array.from({ length: count }, () => rng.nextInt(10)).join('');

export const wordings: Readonly<Record<TaskForm, Wording>> = {
  codes: {
    fact: (key, value) => `The code of ${key} is ${value}.`,
    question: (key) => `\n\nWhat is the code of ${key}? The code of ${key} is`,
    next: (key) => `. The code of ${key} is`,
    value: (rng) => digits(rng, 5),
  },
  general: {
    fact: (key, value) => `One of the special magic numbers for ${key} is: ${value}.`,
    question: (key) =>
      `\n\nWhat is the special magic number for ${key} mentioned in the text above? The special magic number ` +
      `for ${key} mentioned in the text above is:`,
    next: (key) => `. The special magic number for ${key} is:`,
    value: (rng) => digits(rng, 7),
  },
};

const names = (
  'Alice Peter Thomas Julia Martin Helen Arthur Clara Edward Laura Robert Emma Walter Sarah Daniel Grace ' +
  'Philip Rose Simon Ruth Victor Jane Oliver Susan Francis Lucy Hugh Margaret Ralph Agnes'
).split(' ');
const lookalikes = [
  'Mary Marie Maria Marian',
  'Anna Anne Annie Ann',
  'John Johnny Johnson Joan',
  'Henry Harry Henri Harriet',
];
const adjectives = 'amber brave calm dusty eager faint grand happy icy jolly kind lucid mellow noble'.split(' ');
const nouns =
  'anchor basket candle desert engine falcon garden harbor island jacket kettle lantern marble needle'.split(' ');

/** `count` different keys. */
export function distinctKeys(rng: Rng, form: TaskForm, count: number): string[] {
  const keys = new Set<string>();
  while (keys.size < count) {
    keys.add(form === 'codes' ? pick(rng, names) : `${pick(rng, adjectives)}-${pick(rng, nouns)}`);
  }
  return [...keys];
}

/** Keys that are nearly equal: names with the same beginning, identifiers that differ in one letter. */
export function similarKeys(rng: Rng, form: TaskForm): string[] {
  if (form === 'codes') return shuffle(rng, pick(rng, lookalikes).split(' '));
  const letters = Array.from({ length: 8 }, () => 'abcdefghij'[rng.nextInt(10)]);
  return shuffle(
    rng,
    Array.from({ length: 4 }, (_, i) => letters.map((letter, at) => (at === 5 ? 'klmn'[i] : letter)).join('')),
  );
}

export function pick<T>(rng: Rng, list: readonly T[]): T {
  return list[rng.nextInt(list.length)];
}

/** Fisher-Yates shuffle into a new list. */
export function shuffle<T>(rng: Rng, list: readonly T[]): T[] {
  const shuffled = [...list];
  for (let i = shuffled.length - 1; i > 0; i--) {
    const j = rng.nextInt(i + 1);
    [shuffled[i], shuffled[j]] = [shuffled[j], shuffled[i]];
  }
  return shuffled;
}
