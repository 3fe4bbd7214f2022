/** What policies require of the caches of their programs, to be checked before caches are allocated. */
import { ArgumentError } from '@winnow/tensor';
import { deltaOf } from '../policy/fields.js';
import type { AttentionPolicy, LayerPolicy } from '../policy/kinds.js';
import { meanSizeOf, pageSizeOf } from './side-data.js';

export interface AttentionRequirements {
  /** The number of tokens of a cache block must be a multiple of each. */
  readonly blockSizes: readonly number[];
  /** Whether sequences carry states (`state.<layer>.*`, with the scalars `stateFrom` and `stateTo`). */
  readonly needsStates: boolean;
  /** Whether logical slot j of a sequence must hold position j: no ring, and no slots moved after an eviction. */
  readonly needsOrderedSlots: boolean;
  /**
   * Positions that are read when all policies are streaming without correction: the first `sinks` and the last `window`.
   * Undefined when some policy reads others, too.
   */
  readonly reads: { readonly sinks: number; readonly window: number } | undefined;
}

/** What the policies of all layers and both phases require together. */
export function attentionRequirements(layers: readonly LayerPolicy[]): AttentionRequirements {
  const policies = layers.flatMap(({ prefill, decode }) => [prefill, decode]);
  const blockSizes = new Set(policies.flatMap((policy) => [meanSizeOf(policy) ?? [], pageSizeOf(policy) ?? []].flat()));
  return {
    blockSizes: [...blockSizes].sort((a, b) => a - b),
    needsStates: policies.some((policy) => policy.kind === 'h2o-prefill' || deltaOf(policy) > 0),
    needsOrderedSlots: policies.some(({ kind }) => kind === 'subquadratic' || kind === 'h2o-prefill'),
    reads: readsOf(policies),
  };
}

function readsOf(policies: readonly AttentionPolicy[]): { sinks: number; window: number } | undefined {
  let [sinks, window] = [0, 0];
  for (const policy of policies) {
    if (policy.kind !== 'streaming' || deltaOf(policy) > 0) return undefined;
    sinks = Math.max(sinks, policy.sinks);
    window = Math.max(window, policy.window);
  }
  return policies.length === 0 ? undefined : { sinks, window };
}

/** @throws {ArgumentError} when the policies do not support blocks of `blockSize` tokens */
export function checkBlockSize({ blockSizes }: AttentionRequirements, blockSize: number): void {
  for (const size of blockSizes) {
    if (blockSize % size === 0) continue;
    const expected = `blocks of a multiple of ${size} tokens for this attention policy`;
    throw new ArgumentError({ argument: 'blockSize', expected, actual: `blocks of ${blockSize}` });
  }
}
