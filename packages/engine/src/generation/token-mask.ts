/** Token masks in sampling. */
import type { ReadOutput } from '../memory/step-outputs.js';

/**
 * Puts the allowed candidates first, in ascending order of ids.
 * @param logits by token; afterwards by candidate
 * @returns how many
 */
export function keepAllowed(mask: Uint32Array, ids: Int32Array, logits: Float32Array): number {
  let count = 0;
  for (let word = 0; word < mask.length; word++) {
    for (let bits = mask[word] as number; bits !== 0; bits &= bits - 1) {
      const id = word * 32 + 31 - Math.clz32(bits & -bits);
      ids[count] = id;
      logits[count] = logits[id] as number; // count <= id: not overwritten yet
      count++;
    }
  }
  return count;
}

/** Whether a mask allows a token. */
export function isAllowed(mask: Uint32Array, id: number): boolean {
  return (((mask[id >> 5] as number) >>> (id & 31)) & 1) === 1;
}

/**
 * Selects the most probable allowed token among the top tokens of a step, which usually saves reading all logits.
 */
export class BestReader {
  readonly #topIds: Int32Array;
  readonly #topLogits: Float32Array;

  /** @param numTop entries of the `topValues` and `topIndices` outputs; 0: never looks */
  constructor(numTop: number) {
    this.#topIds = new Int32Array(numTop);
    this.#topLogits = new Float32Array(numTop);
  }

  /**
   * Puts the token and its logit first.
   * @returns false when none of the top tokens is allowed
   */
  async read(read: ReadOutput, mask: Uint32Array, ids: Int32Array, logits: Float32Array): Promise<boolean> {
    if (this.#topIds.length === 0) return false;
    await read('topIndices', this.#topIds);
    await read('topValues', this.#topLogits);
    const rank = this.#topIds.findIndex((id) => isAllowed(mask, id));
    if (rank < 0) return false;
    ids[0] = this.#topIds[rank] as number;
    logits[0] = this.#topLogits[rank] as number;
    return true;
  }
}
