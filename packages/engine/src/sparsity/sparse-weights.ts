/** A loaded sidecar: the lowering of its programs, and its tables as weights. */
import type { Backend } from '@winnow/ops';
import { addTransposedMatrices, downRowsName, feedForwardNames, type Weight } from '@winnow/models';
import {
  maxRatioOf,
  createFeedForwardLowering,
  predictorWeights,
  type MaxActiveRatio,
  type Sidecar,
  type SparseFeedForwardLowering,
  type SparseLayer,
} from '@winnow/sparse-inference';
import type { DType } from '@winnow/tensor';
import { neuronRows } from './neuron-rows.js';
import type { SparsityOptions } from './options.js';

export interface SparseWeights {
  readonly sidecar: Sidecar;
  readonly lowering: SparseFeedForwardLowering;
  /** Whether only drafts skip neurons. */
  readonly isForDrafts: boolean;
  /** Called for each layer that skips neurons. */
  readonly onLayer: (layer: number, ffnDim: number) => void;
  /** Notices for the caller. */
  readonly notices: readonly string[];
  /** Number of neurons of those layers. */
  readonly ffnDims: ReadonlyMap<number, number>;
}

/** Adds the weights of sparse programs: tables of the predictors, and transposed matrices. */
export function createSparseWeights(
  calibrated: Sidecar,
  weights: Map<string, Weight>,
  numLayers: number,
  { breakEvenRatio }: Pick<Backend, 'breakEvenRatio'>,
  sparsity: SparsityOptions = {},
): SparseWeights {
  const { maxActive: maxRatio = breakEvenRatio, oracle = false } = sparsity;
  const options = { maxRatio, oracle };
  addTransposedMatrices(weights, numLayers);
  const sidecar = { ...calibrated, layers: calibrated.layers.map((layer) => withRows(layer, weights)) };
  for (const [name, { dtype, shape, bytes }] of predictorWeights(sidecar, options)) {
    const sizeBytes = bytes.byteLength;
    const read = async (target: Uint8Array, { byteOffset = 0 }: { byteOffset?: number } = {}): Promise<void> =>
      target.set(bytes.subarray(byteOffset, byteOffset + target.length));
    weights.set(name, { name, dtype, shape, sizeBytes, stored: { name, dtype, shape, sizeBytes, read } });
  }
  const ffnDims = new Map<number, number>();
  const lowering = createFeedForwardLowering(sidecar, options);
  return {
    sidecar,
    lowering,
    isForDrafts: sparsity.use === 'drafts',
    onLayer: (layer, ffnDim) => void ffnDims.set(layer, ffnDim),
    ffnDims,
    notices: [...adaptedNotice(sidecar, weights), ...denseNotice(sidecar, lowering, maxRatio)],
  };
}

/** Dtypes may differ from those of the calibration. */
function withRows(layer: SparseLayer, weights: ReadonlyMap<string, Weight>): SparseLayer {
  const { gate, up } = feedForwardNames(layer.layer);
  const typeOf = (name: string): DType | undefined => weights.get(name)?.dtype;
  const [ofUp, ofDown] = [typeOf(`${up}.weight`), typeOf(downRowsName(layer.layer))];
  if (ofUp === undefined || ofDown === undefined) return layer;
  const hasBias = [gate, up].some((name) => weights.has(`${name}.bias`));
  return { ...layer, rows: neuronRows({ gate: typeOf(`${gate}.weight`), up: ofUp, down: ofDown }, hasBias) };
}

/** Adapters need all neurons. */
function adaptedNotice({ layers }: Sidecar, weights: ReadonlyMap<string, Weight>): string[] {
  const adapted = layers.filter(({ layer }) =>
    Object.values(feedForwardNames(layer)).some((name) => weights.has(`${name}.lora_a`)),
  );
  const text = `${adapted.length} layers have LoRA adapters on their FFNs and run dense`;
  return adapted.length === 0 ? [] : [text];
}

/** The notice about layers that run dense because sparse would be slower. */
function denseNotice(
  { layers }: Sidecar,
  { denseLayers }: SparseFeedForwardLowering,
  maxRatio: MaxActiveRatio,
): string[] {
  if (denseLayers.length === 0) return [];
  const limits = layers
    .filter(({ layer }) => denseLayers.includes(layer))
    .map((layer) => Math.round(100 * maxRatioOf(layer, maxRatio)));
  const [least, most] = [Math.min(...limits), Math.max(...limits)];
  const share = least === most ? `${least} %` : `${least} to ${most} %`;
  return [
    `${denseLayers.length} of ${layers.length} layers run dense, since more than ${share} of their neurons are active (sparsity.maxActive)`,
  ];
}
