/** Which positions the memory of `h2o` caches, per layer and KV head. */
import type { Backend } from '@winnow/ops';
import type { H2oPrefillPolicy } from '@winnow/sparse-attention';
import type { AttentionCapture } from './capture.js';
import { h2oMemorySets } from './h2o-memory-sets.js';
import { checkOptions, type OptionNames } from '@winnow/tensor';

export interface CachedMap {
  readonly layer: number | undefined;
  /** KV head. */
  readonly head: number;
  /**
   * `[numCells]`: the share of the memory sets that could have cached a token of the cell and did (mean over its tokens);
   * NaN where there were none, at the end of the prompt.
   */
  readonly shares: Float32Array;
  /** Number of tokens of a cell; the last one may have fewer. */
  readonly tokensPerCell: number;
}

export interface CachedMapOptions {
  /** Maximum number of cells along the prompt. Default: 256. */
  readonly maxCells?: number | undefined;
  /** Default: the reference backend, which is slow. */
  readonly backend?: Backend | undefined;
}

const cachedMapNames: OptionNames<CachedMapOptions> = { maxCells: true, backend: true };

/** Runs a captured layer under the policy and counts which positions memory caches. */
export async function createCachedMaps(
  policy: H2oPrefillPolicy,
  capture: AttentionCapture,
  options: CachedMapOptions = {},
): Promise<CachedMap[]> {
  checkOptions(options, cachedMapNames);
  const { maxCells = 256, backend } = options;
  const numTokens = capture.q.seqLen;
  const tokensPerCell = Math.ceil(numTokens / maxCells);
  const numCells = Math.ceil(numTokens / tokensPerCell);
  const sets = await h2oMemorySets(policy, capture, { backend });
  const chances = new Float32Array(numCells);
  for (const { end } of sets) for (let t = 0; t < end; t++) chances[Math.floor(t / tokensPerCell)]++;
  return Array.from({ length: capture.k.numHeads }, (_, head): CachedMap => {
    const shares = new Float32Array(numCells);
    for (const { cached } of sets) for (const position of cached[head]) shares[Math.floor(position / tokensPerCell)]++;
    for (let cell = 0; cell < numCells; cell++) shares[cell] /= chances[cell];
    return { layer: capture.layer, head, shares, tokensPerCell };
  });
}
