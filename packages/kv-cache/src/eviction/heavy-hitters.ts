/**
 * Keeps the most attended positions (H2O, arXiv:2306.14048). You add the probability mass that each key received;
 * positions with the smallest sums are evicted. Global and recent positions are protected.
 */
import { ArgumentError, CapacityError, checkOptions, type OptionNames } from '@winnow/tensor';
import type { SequenceView } from '../blocks/sequence-state.js';

export interface HeavyHitterOptions {
  /** Maximum number of positions in the pool, including those of the next step. */
  readonly budget: number;
  /** Number of most recent positions that are never evicted. */
  readonly recentWindow: number;
  /** Positions that are never evicted. Default: none. */
  readonly isGlobal?: (position: number) => boolean;
}

const heavyHitterNames: OptionNames<HeavyHitterOptions> = { budget: true, recentWindow: true, isGlobal: true };

export interface Victims {
  readonly slots: number[];
  readonly positions: number[];
}

export interface HeavyHitters {
  readonly options: HeavyHitterOptions;
  /** Adds the mass that each position received, summed over heads and layers by the caller. */
  addMass(positions: ArrayLike<number>, masses: ArrayLike<number>): void;
  score(position: number): number;
  /**
   * Victims to evict before `numNewTokens` are appended: the smallest score first, of equal scores the oldest position.
   * @throws {CapacityError} when too many positions are protected
   */
  chooseVictims(sequence: SequenceView, numNewTokens: number): Victims;
  /**
   * Full blocks to detach instead (demotion), smallest sum of scores first; none with a protected position.
   * @returns indices in the block table
   * @throws {CapacityError} when fewer than `numBlocks` can be detached
   */
  chooseBlocks(sequence: SequenceView, blockSize: number, numBlocks: number): number[];
  /** Forgets scores from `numTokens` on. */
  truncate(numTokens: number): void;
  fork(): HeavyHitters;
}

/** @throws {ArgumentError} unless `budget` is positive and `recentWindow` at least 0 */
export function createHeavyHitters(options: HeavyHitterOptions): HeavyHitters {
  checkOptions(options, heavyHitterNames);
  const { budget, recentWindow } = options;
  if (!Number.isSafeInteger(budget) || budget < 1) {
    throw new ArgumentError({ argument: 'budget', expected: 'a positive integer', actual: String(budget) });
  }
  if (!Number.isSafeInteger(recentWindow) || recentWindow < 0) {
    throw new ArgumentError({ argument: 'recentWindow', expected: 'an integer from 0', actual: String(recentWindow) });
  }
  return new ScoredPositions(options, new Float64Array(64));
}

class ScoredPositions implements HeavyHitters {
  readonly options: HeavyHitterOptions;
  #scores: Float64Array<ArrayBuffer>;

  constructor(options: HeavyHitterOptions, scores: Float64Array<ArrayBuffer>) {
    this.options = options;
    this.#scores = scores;
  }

  score(position: number): number {
    return position < this.#scores.length ? this.#scores[position] : 0;
  }

  addMass(positions: ArrayLike<number>, masses: ArrayLike<number>): void {
    for (let i = 0; i < positions.length; i++) {
      const position = positions[i];
      if (position < 0) continue;
      if (position >= this.#scores.length) {
        const grown = new Float64Array(Math.max(position + 1, this.#scores.length * 2));
        grown.set(this.#scores);
        this.#scores = grown;
      }
      this.#scores[position] += masses[i];
    }
  }

  chooseVictims(sequence: SequenceView, numNewTokens: number): Victims {
    const { positions } = sequence;
    const candidates: number[] = [];
    let numHeld = 0;
    for (let slot = 0; slot < positions.length; slot++) {
      if (positions[slot] < 0) continue;
      numHeld++;
      if (!this.#isProtected(positions[slot], sequence)) candidates.push(slot);
    }
    const needed = Math.max(0, numHeld + numNewTokens - this.options.budget);
    this.#checkEnough(needed, candidates.length, 'positions', numHeld);
    const byScore = (a: number, b: number): number =>
      this.score(positions[a]) - this.score(positions[b]) || positions[a] - positions[b];
    const slots = smallest(candidates, needed, byScore);
    return { slots, positions: slots.map((slot) => positions[slot]) };
  }

  chooseBlocks(sequence: SequenceView, blockSize: number, numBlocks: number): number[] {
    const { positions, blocks } = sequence;
    const candidates: number[] = [];
    const sums = new Float64Array(blocks.length);
    for (let index = 0; (index + 1) * blockSize <= positions.length; index++) {
      let isFree = true;
      for (let slot = index * blockSize; slot < (index + 1) * blockSize; slot++) {
        if (positions[slot] < 0) continue;
        sums[index] += this.score(positions[slot]);
        if (this.#isProtected(positions[slot], sequence)) isFree = false;
      }
      if (isFree) candidates.push(index);
    }
    this.#checkEnough(numBlocks, candidates.length, 'blocks', positions.length);
    return smallest(candidates, numBlocks, (a, b) => sums[a] - sums[b] || a - b);
  }

  truncate(numTokens: number): void {
    this.#scores.fill(0, Math.min(numTokens, this.#scores.length));
  }

  fork(): HeavyHitters {
    return new ScoredPositions(this.options, this.#scores.slice());
  }

  #isProtected(position: number, { numTokens, numCommitted }: SequenceView): boolean {
    const { recentWindow, isGlobal } = this.options;
    return position >= numTokens - recentWindow || position >= numCommitted || isGlobal?.(position) === true;
  }

  #checkEnough(needed: number, available: number, unit: string, numHeld: number): void {
    if (needed <= available) return;
    const { recentWindow } = this.options;
    throw new CapacityError({
      resource: 'kv cache: heavy hitters',
      needed,
      available,
      unit: `unprotected ${unit}`,
      hint: `the others of ${numHeld} cached positions are protected: the last ${recentWindow} and globals`,
    });
  }
}

/** The `count` first values in the order of `compare`; one pass for a single one. */
function smallest(values: number[], count: number, compare: (a: number, b: number) => number): number[] {
  if (count !== 1) return values.sort(compare).slice(0, count);
  let best = values[0];
  for (const value of values) if (compare(value, best) < 0) best = value;
  return [best];
}
