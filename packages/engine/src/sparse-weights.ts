/** A sidecar in use: the writer of its programs, and its tables as weights. */
import { addTurnedMatrices, feedForwardNames, type Weight } from '@winnow/models';
import {
  createFeedForwardWriter,
  predictorWeights,
  type Sidecar,
  type SparseFeedForwardWriter,
} from '@winnow/sparse-inference';

export interface SparseWeights {
  readonly sidecar: Sidecar;
  readonly writer: SparseFeedForwardWriter;
  /** Called for each layer that skips neurons. */
  readonly onLayer: (layer: number, ffnDim: number) => void;
  /** What the caller should know. */
  readonly notices: readonly string[];
  /** Neurons of those layers. */
  readonly ffnDims: ReadonlyMap<number, number>;
}

export interface SparseWriterOptions {
  readonly maxRatio?: number;
  readonly oracle?: boolean;
}

/** Adds what sparse programs read to the weights: the tables of the predictors, and turned matrices. */
export function createSparseWeights(
  sidecar: Sidecar,
  weights: Map<string, Weight>,
  numLayers: number,
  options: SparseWriterOptions = {},
): SparseWeights {
  addTurnedMatrices(weights, numLayers);
  for (const [name, { dtype, shape, bytes }] of predictorWeights(sidecar, options)) {
    const sizeBytes = bytes.byteLength;
    const read = async (target: Uint8Array, { byteOffset = 0 }: { byteOffset?: number } = {}): Promise<void> =>
      target.set(bytes.subarray(byteOffset, byteOffset + target.length));
    weights.set(name, { name, dtype, shape, sizeBytes, stored: { name, dtype, shape, sizeBytes, read } });
  }
  const ffnDims = new Map<number, number>();
  return {
    sidecar,
    writer: createFeedForwardWriter(sidecar, options),
    onLayer: (layer, ffnDim) => void ffnDims.set(layer, ffnDim),
    ffnDims,
    notices: adaptedNotice(sidecar, weights),
  };
}

/** What adapters add needs all neurons. */
function adaptedNotice({ layers }: Sidecar, weights: ReadonlyMap<string, Weight>): string[] {
  const adapted = layers.filter(({ layer }) =>
    Object.values(feedForwardNames(layer)).some((name) => weights.has(`${name}.lora_a`)),
  );
  const text = `${adapted.length} layers have adapters on their FFN: all of their neurons are computed`;
  return adapted.length === 0 ? [] : [text];
}
