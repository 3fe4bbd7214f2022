/** What a step of a decoder has to read and compute, from its sizes. */
import type { Model } from '@winnow/engine';

type Config = Model['config'];

/** Weights of the layers' matrices: what each token of a prompt is multiplied with. */
export function matmulWeights({ hiddenDim, numLayers, numHeads, numKvHeads, headDim, ffnDim }: Config): number {
  const attention = 2 * hiddenDim * headDim * (numHeads + numKvHeads);
  return numLayers * (attention + 3 * hiddenDim * ffnDim);
}

/** Bytes that one decoded token reads at least: all weights but the unused rows of the embedding, and the cache once. */
export function decodeBytes({ config, plan }: Model, embeddingBytes: number, numKeys: number): number {
  const weights = config.isTied ? plan.weightsBytes : plan.weightsBytes - embeddingBytes;
  return weights + numKeys * plan.kvBytesPerToken;
}
