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

/** Returns false if none of the top tokens of the step is allowed. */
export type BestReader = (
  read: ReadOutput,
  mask: Uint32Array,
  ids: Int32Array,
  logits: Float32Array,
) => Promise<boolean>;

/**
 * Selects the most probable allowed token among the top tokens of the step, which usually saves reading all logits.
 * False when none of them is allowed.
 * @param numTop entries of the `topValues` and `topIndices` outputs; 0: never looks
 */
export function createBestReader(numTop: number): BestReader {
  const topIds = new Int32Array(numTop);
  const topLogits = new Float32Array(numTop);
  return async (read, mask, ids, logits) => {
    if (numTop === 0) return false;
    await read('topIndices', topIds);
    await read('topValues', topLogits);
    const rank = topIds.findIndex((id) => isAllowed(mask, id));
    if (rank < 0) return false;
    ids[0] = topIds[rank] as number;
    logits[0] = topLogits[rank] as number;
    return true;
  };
}
