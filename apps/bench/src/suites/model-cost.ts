/** The bytes and operations of a decoder step, computed from its dimensions. */
import type { Model } from '@winnow/engine';

type Config = Model['config'];

/** Number of weights in the layers' matrices, each used once per prompt token. */
export function matmulWeights({ hiddenDim, numLayers, numHeads, numKvHeads, headDim, ffnDim }: Config): number {
  const attention = 2 * hiddenDim * headDim * (numHeads + numKvHeads);
  return numLayers * (attention + 3 * hiddenDim * ffnDim);
}

/** Minimum bytes read per decoded token: all weights except unused rows of the embedding, and the cache once. */
export function decodeBytes({ config, plan }: Model, embeddingBytes: number, numKeys: number): number {
  const weights = config.isTied ? plan.weightsBytes : plan.weightsBytes - embeddingBytes;
  return weights + numKeys * plan.kvBytesPerToken;
}
