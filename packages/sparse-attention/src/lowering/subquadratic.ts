/** Subquadratic policies: attributes of their op, the keys that a query attends to, and their number. */
import { maxGlobals, subquadraticLandmarkRule, subquadraticTokenRule, type Attributes } from '@winnow/ops';
import { ArgumentError } from '@winnow/tensor';
import type { SubquadraticPolicy } from '../policy/kinds.js';

/** Attributes of the op for a policy. @throws {ArgumentError} for more globals than a record can hold */
export function subquadraticAttributes(policy: SubquadraticPolicy): Attributes {
  const { globals, window, logStride, landmarks, landmarkBias } = policy;
  if (globals.length > maxGlobals) {
    const actual = String(globals.length);
    throw new ArgumentError({ argument: 'attention: globals', expected: `at most ${maxGlobals} positions`, actual });
  }
  return {
    ...{ local: window, logStride, landmarks, logCount: landmarkBias === 'log-count' },
    ...Object.fromEntries(globals.map((position, index) => [`global${index}`, position])),
  };
}

/** Options that determine the keys of a query besides the policy. */
export interface SubquadraticKeysOptions {
  /** Default: true. In bidirectional attention a query attends to both sides. */
  readonly causal?: boolean | undefined;
  /**
   * Whether to keep a log-stride token; called only for tokens outside the window and the globals. Default: keep all.
   */
  readonly keepStride?: ((position: number) => boolean) | undefined;
}

/** Keys of one query, ascending. */
export interface QueryKeys {
  /** Positions of tokens. */
  readonly tokens: Int32Array;
  /** Blocks whose means are keys (landmarks). */
  readonly blocks: Int32Array;
}

/** The keys of query `position` in a sequence of `seqLen` tokens. Cost: one pass over the sequence. */
export function subquadraticKeys(
  policy: SubquadraticPolicy,
  position: number,
  seqLen: number,
  { causal = true, keepStride }: SubquadraticKeysOptions = {},
): QueryKeys {
  const attributes = { ...subquadraticAttributes(policy), causal };
  const isKey = subquadraticTokenRule(attributes);
  const isAlwaysKey = subquadraticTokenRule({ ...attributes, logStride: false });
  const isToken =
    keepStride === undefined
      ? isKey
      : (i: number, j: number): boolean => isKey(i, j) && (isAlwaysKey(i, j) || keepStride(j));
  const isLandmark = subquadraticLandmarkRule(attributes, policy.blockSize, isToken);
  const tokens: number[] = [];
  const blocks: number[] = [];
  const end = causal ? position + 1 : seqLen;
  for (let j = 0; j < end; j++) if (isToken(position, j)) tokens.push(j);
  if (policy.landmarks !== 'off') {
    const numBlocks = Math.ceil(end / policy.blockSize);
    for (let block = 0; block < numBlocks; block++) if (isLandmark(position, block, seqLen)) blocks.push(block);
  }
  return { tokens: Int32Array.from(tokens), blocks: Int32Array.from(blocks) };
}

/**
 * Query-key pairs of one head at query `position`, including landmarks, in closed form for a causal sequence:
 * `min(i, W) + 1`, the globals and distances `2^k` outside the window, and `1 + bitlen(pivot)` landmarks.
 * @throws {ArgumentError} for `outside-window` landmarks, which have no closed form: see `auditPairs`
 */
export function countRow(policy: SubquadraticPolicy, position: number): number {
  const { window, blockSize, globals, logStride, landmarks } = policy;
  if (landmarks === 'outside-window') {
    throw new ArgumentError({ argument: 'countRow', expected: 'landmarks compat or off', actual: landmarks });
  }
  let count = Math.min(position, window) + 1;
  for (const g of globals) if (g < position - window) count += 1;
  if (logStride) {
    const first = window < 1 ? 1 : 2 ** (32 - Math.clz32(window)); // the smallest power of two beyond the window
    for (let s = first; s <= position; s *= 2) if (!globals.includes(position - s)) count += 1;
  }
  const numBlocks = Math.floor((position + 1) / blockSize);
  if (landmarks === 'off' || numBlocks === 0) return count;
  return count + 1 + (logStride ? 32 - Math.clz32(numBlocks - 1) : Math.min(1, numBlocks - 1));
}

/** Sum of `countRow` over a causal sequence. */
export function countPairs(policy: SubquadraticPolicy, seqLen: number): number {
  let sum = 0;
  for (let i = 0; i < seqLen; i++) sum += countRow(policy, i);
  return sum;
}

/** Query-key pairs of one head over a whole sequence. */
export interface PairCount {
  readonly pairs: number;
  /** `N (N + 1) / 2`, or `N^2` when bidirectional. */
  readonly densePairs: number;
  readonly tokenPairs: number;
  readonly landmarkPairs: number;
}

/** Counts the keys of each query, for policies without a closed form, too. Cost: as many steps as dense pairs. */
export function auditPairs(
  policy: SubquadraticPolicy,
  seqLen: number,
  options: SubquadraticKeysOptions = {},
): PairCount {
  let tokenPairs = 0;
  let landmarkPairs = 0;
  for (let i = 0; i < seqLen; i++) {
    const { tokens, blocks } = subquadraticKeys(policy, i, seqLen, options);
    tokenPairs += tokens.length;
    landmarkPairs += blocks.length;
  }
  const densePairs = options.causal === false ? seqLen * seqLen : (seqLen * (seqLen + 1)) / 2;
  return { pairs: tokenPairs + landmarkPairs, densePairs, tokenPairs, landmarkPairs };
}
