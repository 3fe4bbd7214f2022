/** Optional output of sparse attention ops: the probability of each visited key. */
import type { SoftmaxSum } from '../numerics/softmax-sum.js';
import { f32Only } from '../spec/dtypes.js';
import type { AttributeSpec, OutputSpec, TensorView } from '../spec/op-spec.js';

/**
 * The output `mass [T, K, M, S]`: for each token and KV head, the probability of the key in slot `s` of block `m` of
 * the table, in the op's own softmax, summed over the query heads of the group; 0 for keys that were not visited.
 * Landmarks and mean values are not included, so the sum of a row is at most the number of query heads.
 */
export const massOutput: OutputSpec = { dtypes: f32Only, shape: 'T K M S', when: 'mass' };

/**
 * Requests `massOutput`, which computes the logits of the visited keys a second time and takes `T K M S` numbers of
 * memory.
 */
export const massAttribute: AttributeSpec = { kind: 'boolean', default: false };

/** Collects the logits of one (token, KV head) and converts them to masses. */
export class KeyMass {
  readonly #mass: TensorView;
  readonly #logits: Float64Array; // [group, M * S], -Infinity where not visited
  readonly #totals: Float64Array;

  constructor(mass: TensorView, groupSize: number) {
    this.#mass = mass;
    const [, , maxBlocks = 0, blockSize = 0] = mass.shape;
    this.#totals = new Float64Array(maxBlocks * blockSize);
    this.#logits = new Float64Array(groupSize * maxBlocks * blockSize).fill(-Infinity);
  }

  /** Query head `g` of the group visits a logical slot. */
  visit(g: number, logicalSlot: number, logit: number): void {
    this.#logits[g * this.#totals.length + logicalSlot] = logit;
  }

  /** The softmax of query head `g` is complete. */
  finish(g: number, { max, sum }: SoftmaxSum): void {
    const numSlots = this.#totals.length;
    for (let j = 0; j < numSlots; j++) {
      const logit = this.#logits[g * numSlots + j];
      if (logit !== -Infinity) this.#totals[j] += Math.exp(logit - max) / sum;
    }
    this.#logits.fill(-Infinity, g * numSlots, (g + 1) * numSlots);
  }

  /** All query heads are complete. */
  write(token: number, kvHead: number): void {
    const begin = (token * this.#mass.shape[1] + kvHead) * this.#totals.length;
    this.#mass.data.set(this.#totals, begin);
    this.#totals.fill(0);
  }
}

/** Undefined if the output was not requested. */
export function bindKeyMass(mass: TensorView | undefined, groupSize: number): KeyMass | undefined {
  return mass === undefined ? undefined : new KeyMass(mass, groupSize);
}
