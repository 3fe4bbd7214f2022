/** Reads the top tokens of a step with their log-probabilities. */
import type { ReadOutput } from '../memory/step-outputs.js';
import type { TokenLogprob } from './generation.js';

export function createTopReader(count: number): (read: ReadOutput) => Promise<readonly TokenLogprob[]> {
  const ids = new Int32Array(count);
  const logits = new Float32Array(count);
  const logSumExp = new Float32Array(1);
  return async (read) => {
    await read('topIndices', ids);
    await read('topValues', logits);
    await read('logSumExp', logSumExp);
    return Array.from(ids, (tokenId, rank) => ({
      tokenId,
      logprob: (logits[rank] as number) - (logSumExp[0] as number),
    }));
  };
}
