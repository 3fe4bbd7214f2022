/**
 * Which keys a query of the subquadratic family sees: window, globals, log-stride and landmarks. Nothing is allocated
 * per query, nothing of the size of the sequence is kept.
 */
import { ArgumentError } from '@winnow/tensor';
import type { SubquadraticPolicy } from '../policy/policy-types.js';

/** What `CandidateSet` needs besides the policy. */
export interface CandidateOptions {
  readonly policy: SubquadraticPolicy;
  /** Default: true. Bidirectional sequences are looked at as a whole. */
  readonly causal?: boolean;
  /** Whether a log-stride token stays; asked for tokens outside the window only. Default: all stay. */
  readonly keepStride?: ((position: number) => boolean) | undefined;
}

/** The candidates of one query at a time, in reused arrays. */
export class CandidateSet {
  readonly policy: SubquadraticPolicy;
  readonly causal: boolean;
  /** Positions: window ascending, then globals, then log-stride by distance (all ascending with `sortCandidates`). */
  tokens: Int32Array;
  numTokens = 0;
  /** Of those, the first so many are the window. 0 with `sortCandidates`. */
  numWindow = 0;
  readonly blocks: Int32Array;
  numBlocks = 0;
  readonly #keepStride: ((position: number) => boolean) | undefined;
  readonly #sortedGlobals: Int32Array;

  constructor({ policy, causal = true, keepStride }: CandidateOptions) {
    this.policy = policy;
    this.causal = causal;
    this.#keepStride = keepStride;
    this.#sortedGlobals = Int32Array.from(policy.globals).sort();
    this.tokens = new Int32Array(256 + policy.globals.length + 64);
    this.blocks = new Int32Array(64); // 2 neighbours and at most 2 x 31 distances
  }

  /**
   * Finds the candidates of query `position` in a sequence of `seqLen` tokens; causal sets do not depend on `seqLen`.
   * With `edgesOnly` the window is left out of `tokens`.
   */
  enumerate(position: number, seqLen: number, edgesOnly = false): void {
    const { policy, causal } = this;
    const { window, globals, logStride } = policy;
    const begin = Math.max(0, position - window);
    const end = causal ? position + 1 : Math.min(seqLen, position + window + 1);
    this.#reserve(end - begin + globals.length + 64);
    const { tokens } = this;
    let n = 0;
    if (!edgesOnly) for (let j = begin; j < end; j++) tokens[n++] = j;
    this.numWindow = n;
    const limit = causal ? position + 1 : seqLen;
    for (const g of globals) if (g < limit && (g < begin || g >= end)) tokens[n++] = g;
    if (logStride) {
      for (let s = firstStride(window); s < seqLen && s > 0; s *= 2) {
        if (position >= s && this.#staysStride(position - s)) tokens[n++] = position - s;
        if (!causal && position + s < seqLen && this.#staysStride(position + s)) tokens[n++] = position + s;
        if (causal && position < s) break;
      }
    }
    this.numTokens = n;
    this.#enumerateBlocks(position, seqLen, begin, end);
    if (!policy.sortCandidates) return;
    tokens.subarray(0, n).sort();
    this.blocks.subarray(0, this.numBlocks).sort();
    this.numWindow = 0;
  }

  #reserve(length: number): void {
    if (this.tokens.length < length) this.tokens = new Int32Array(2 * length);
  }

  #staysStride(position: number): boolean {
    return !this.#isGlobal(position) && (this.#keepStride === undefined || this.#keepStride(position));
  }

  #isGlobal(position: number): boolean {
    const sorted = this.#sortedGlobals;
    let low = 0;
    let high = sorted.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (sorted[middle] < position) low = middle + 1;
      else high = middle;
    }
    return low < sorted.length && sorted[low] === position;
  }

  #enumerateBlocks(position: number, seqLen: number, begin: number, end: number): void {
    const { landmarks, blockSize, logStride } = this.policy;
    this.numBlocks = 0;
    if (landmarks === 'off') return;
    const numBlocks = this.causal ? Math.floor((position + 1) / blockSize) : Math.ceil(seqLen / blockSize);
    if (numBlocks === 0) return;
    const pivot = this.causal ? numBlocks - 1 : Math.floor(position / blockSize);
    this.#addBlock(pivot - 1, numBlocks, position, seqLen, begin, end);
    this.#addBlock(this.causal ? pivot : pivot + 1, numBlocks, position, seqLen, begin, end);
    if (!logStride) return;
    for (let s = 2; s < numBlocks; s *= 2) {
      this.#addBlock(pivot - s, numBlocks, position, seqLen, begin, end);
      if (!this.causal) this.#addBlock(pivot + s, numBlocks, position, seqLen, begin, end);
    }
  }

  #addBlock(block: number, numBlocks: number, position: number, seqLen: number, begin: number, end: number): void {
    if (block < 0 || block >= numBlocks) return;
    const skipsCovered = this.policy.landmarks === 'outside-window';
    if (skipsCovered && this.#isCovered(block, position, seqLen, begin, end)) return;
    this.blocks[this.numBlocks++] = block;
  }

  /** Whether every token of the block is a candidate of its own. */
  #isCovered(block: number, position: number, seqLen: number, begin: number, end: number): boolean {
    const { blockSize } = this.policy;
    const last = Math.min(seqLen, (block + 1) * blockSize);
    for (let j = block * blockSize; j < last; j++) {
      if (j >= begin && j < end) {
        j = Math.min(end, last) - 1; // the window covers up to here
        continue;
      }
      if (!this.#isEdge(j, position)) return false;
    }
    return true;
  }

  #isEdge(j: number, position: number): boolean {
    if (this.#isGlobal(j)) return true;
    if (!this.policy.logStride) return false;
    const distance = Math.abs(position - j);
    return (distance & (distance - 1)) === 0 && (this.#keepStride === undefined || this.#keepStride(j));
  }
}

/** The smallest power of two beyond the window. */
function firstStride(window: number): number {
  return window < 1 ? 1 : 2 ** (32 - Math.clz32(window));
}

/**
 * Pairs of query and key of one head at query `position`, landmarks included, by the closed form of a causal sequence:
 * `min(i, W) + 1`, the globals and distances `2^k` outside the window, and `1 + bitlen(pivot)` landmarks.
 * @throws {ArgumentError} for `outside-window` landmarks, which have no closed form: enumerate them
 */
export function countRow(policy: SubquadraticPolicy, position: number): number {
  const { window, blockSize, globals, logStride, landmarks } = policy;
  if (landmarks === 'outside-window') {
    throw new ArgumentError({ argument: 'countRow', expected: 'landmarks compat or off', actual: landmarks });
  }
  let count = Math.min(position, window) + 1;
  for (const g of globals) if (g < position - window) count += 1;
  if (logStride) {
    for (let s = firstStride(window); s <= position; s *= 2) if (!globals.includes(position - s)) count += 1;
  }
  const numBlocks = Math.floor((position + 1) / blockSize);
  if (landmarks === 'off' || numBlocks === 0) return count;
  return count + 1 + (logStride ? 32 - Math.clz32(numBlocks - 1) : Math.min(1, numBlocks - 1));
}

/** Pairs of query and key of one head over a whole sequence, as numbers only. */
export interface PairCount {
  readonly pairs: number;
  /** `N (N + 1) / 2`, or `N^2` when bidirectional. */
  readonly densePairs: number;
  readonly tokenPairs: number;
  readonly landmarkPairs: number;
}

/** Counts every pair by enumerating the candidates of each row. Cost: as many steps as pairs. */
export function auditPairs(options: CandidateOptions, seqLen: number): PairCount {
  const set = new CandidateSet(options);
  let tokenPairs = 0;
  let landmarkPairs = 0;
  for (let i = 0; i < seqLen; i++) {
    set.enumerate(i, seqLen);
    tokenPairs += set.numTokens;
    landmarkPairs += set.numBlocks;
  }
  const densePairs = set.causal ? (seqLen * (seqLen + 1)) / 2 : seqLen * seqLen;
  return { pairs: tokenPairs + landmarkPairs, densePairs, tokenPairs, landmarkPairs };
}

/** Sum of `countRow` over a causal sequence. */
export function countPairs(policy: SubquadraticPolicy, seqLen: number): number {
  let sum = 0;
  for (let i = 0; i < seqLen; i++) sum += countRow(policy, i);
  return sum;
}
