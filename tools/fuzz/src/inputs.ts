/** The inputs of a run, which target, seed and number determine: first the corpus as it is, then mutations. */
import { appendFileSync, existsSync, mkdirSync, readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { createRng } from '@winnow/tensor';
import { pick } from '@winnow/test-utils';
import type { Target } from './target.ts';

/** Keeps the corpus compact. */
const maxSavedBytes = 2048;
const maxSavedInputs = 40;

export class Inputs {
  readonly #target: Target;
  readonly #seed: number;
  readonly #starts: readonly Uint8Array[];

  constructor(target: Target, corpus: readonly Uint8Array[], seed: number) {
    this.#target = target;
    this.#seed = seed;
    this.#starts = [...target.examples, ...corpus];
  }

  /** Number of inputs that are not mutated. */
  get numStarts(): number {
    return this.#starts.length;
  }

  at(index: number): Uint8Array {
    if (index < this.#starts.length) return (this.#starts[index] as Uint8Array).slice();
    const random = createRng(this.#seed * 2 ** 24 + index);
    let input: Uint8Array = pick(random, this.#starts).slice();
    for (let count = 1 + random.nextInt(3); count > 0; count--) input = this.#target.mutate(random, input);
    return input;
  }
}

/** The saved inputs of a target: a line of base64 each. */
export function readCorpus(path: string): Uint8Array[] {
  const lines = existsSync(path) ? readFileSync(path, 'utf8').split('\n') : [];
  return lines.filter((line) => line !== '').map((line) => new Uint8Array(Buffer.from(line, 'base64')));
}

/** Saves an input for later runs, if it is small and there is room. */
export function saveInput(path: string, input: Uint8Array): void {
  if (input.length > maxSavedBytes || readCorpus(path).length >= maxSavedInputs) return;
  mkdirSync(dirname(path), { recursive: true });
  appendFileSync(path, `${Buffer.from(input).toString('base64')}\n`);
}
