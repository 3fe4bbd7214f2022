/** Divides the memory that the budget leaves for weights: which layers have slots, and how many. */
import {
  downRowsName,
  expertMatrices,
  expertMatrixName,
  feedForwardNames,
  type DecoderConfig,
  type ExpertMatrix,
  type Weight,
} from '@winnow/models';
import {
  classifyNeurons,
  neuronItemBytes,
  neuronStagingBytes,
  planNeuronTiers,
  type NeuronTierPlan,
  type ColdEncoding,
  type SparseLayer,
  type WarmEncoding,
} from '@winnow/sparse-inference';
import { neuronGroup } from '@winnow/ops';
import { CapacityError, numElements, tensorBytes } from '@winnow/tensor';
import type { SparseWeights } from '../sparsity/sparse-weights.js';
import type { MemoryOptions } from './options.js';
import type { TierableLayer, TieredLayer, TieredMatrix } from './program.js';

/** Maximum and minimum size of a read. */
const [longestRead, shortestRead] = [256 * 1024, 4 * 1024];
/** Reading a gap of this size takes about as long as another call. */
const longestGap = 32 * 1024;
const maxConcurrentReads = 8;

/** How a budget is divided. */
interface TierStyle {
  /** Maximum number of passes of a layer; each costs a boundary. */
  readonly maxPasses: number;
  /** Maximum share of the offloadable bytes for read buffers, unless two reads need more. */
  readonly stagingShare: number;
  /** Whether unpinned slots hold all active items at once; otherwise only those of one pass. */
  readonly isRoomy: boolean;
}

/**
 * The first style that fits the budget is used. Even an empty pass costs time, and unpinned slots hold frequent neurons
 * as well as pinned ones do.
 */
const styles: readonly TierStyle[] = [
  ...[2, 3, 4, 6, 8, 12, 16].map((maxPasses) => ({ maxPasses, stagingShare: 1 / 32, isRoomy: true })),
  { maxPasses: 16, stagingShare: 1 / 32, isRoomy: false },
  { maxPasses: 64, stagingShare: 1 / 128, isRoomy: false },
];

/** How the cache of a plan reads. */
export interface ReadSizes {
  readonly readBytes: number;
  readonly maxReads: number;
  readonly maxGapBytes: number;
}

/** An offloaded layer. */
export interface PlannedTierLayer extends TieredLayer {
  readonly hot: Int32Array;
  readonly warmSlots: number;
  readonly warm: Int32Array;
  readonly frequencies: Float32Array | undefined;
}

export interface WeightTierPlan {
  readonly layers: readonly PlannedTierLayer[];
  readonly byLayer: ReadonlyMap<number, PlannedTierLayer>;
  readonly kind: TierableLayer['kind'];
  readonly warmEncoding: WarmEncoding;
  readonly coldEncoding: ColdEncoding;
  readonly reads: ReadSizes;
  /** Memory of the warm tier and of reads. */
  readonly warmBytes: number;
  readonly stagingBytes: number;
  /** All planned memory: slots, including those of layers with a slot per item, and the two above. */
  readonly plannedBytes: number;
  /** Bytes without a slot, in the file or in the 4-bit copy. */
  readonly coldBytes: number;
  /** Bytes of the 4-bit copy. */
  readonly copyBytes: number;
  /** Number of items of the candidates, and number of slots. */
  readonly numItems: number;
  readonly numSlots: number;
  /** Number of pinned slots. */
  readonly numPinned: number;
}

/** A layer that could be offloaded, and how often its items are needed. */
export interface TierCandidate extends TierableLayer {
  readonly frequencies: Float32Array | undefined;
  /** How many the calibration classifies as hot. */
  readonly numHot: number;
  /** Maximum number of items that a step may need. */
  readonly maxActive: number;
}

/** Only weights that are loaded unchanged can be read item by item. */
function matrixOf(
  weights: ReadonlyMap<string, Weight>,
  weightName: string,
  matrix: ExpertMatrix,
): TieredMatrix | undefined {
  const weight = weights.get(weightName);
  if (weight === undefined || weight.stored.dtype !== weight.dtype || weight.shape.length < 2) return undefined;
  return { matrix, weightName, dtype: weight.dtype, itemShape: weight.shape.slice(1) };
}

/** The layers whose experts can be offloaded. @param maxTokens per step */
export function expertCandidates(
  { experts, numLayers }: DecoderConfig,
  weights: ReadonlyMap<string, Weight>,
  maxTokens: number,
): TierCandidate[] {
  if (experts === undefined) return [];
  const candidates: TierCandidate[] = [];
  const { numExperts, numChosen } = experts;
  for (let layer = 0; layer < numLayers; layer++) {
    if (experts.layers[layer] !== true) continue;
    const matrices = expertMatrices.map((name) => matrixOf(weights, expertMatrixName(layer, name), name));
    if (matrices.some((matrix) => matrix === undefined)) continue;
    candidates.push({
      layer,
      kind: 'expert',
      numItems: numExperts,
      matrices: matrices as TieredMatrix[],
      frequencies: undefined,
      numHot: 0,
      maxActive: Math.min(numExperts, maxTokens * numChosen),
    });
  }
  return candidates;
}

/** The layers whose neurons can be offloaded: sparse layers without adapters, which need all neurons. */
export function neuronCandidates(
  { sidecar, lowering }: Pick<SparseWeights, 'sidecar' | 'lowering'>,
  weights: ReadonlyMap<string, Weight>,
): TierCandidate[] {
  const candidates: TierCandidate[] = [];
  for (const sparse of sidecar.layers) {
    const { layer, ffnDim } = sparse;
    const names = feedForwardNames(layer);
    if (Object.values(names).some((name) => weights.has(`${name}.lora_a`))) continue;
    const weightName = (matrix: 'gate' | 'up' | 'down'): string =>
      matrix === 'down' ? downRowsName(layer) : `${names[matrix]}.weight`;
    const matrices = lowering.matrices(layer).map((name) => matrixOf(weights, weightName(name), name));
    if (matrices.length === 0 || matrices.some((matrix) => matrix === undefined)) continue;
    candidates.push({
      layer,
      kind: 'neuron',
      numItems: ffnDim,
      matrices: matrices as TieredMatrix[],
      frequencies: requestsOf(sparse),
      numHot: classifyNeurons(sparse.frequencies).hot.length,
      maxActive: ffnDim,
    });
  }
  return candidates;
}

/** How often each neuron is requested: when it is needed, plus false positives, spread evenly. */
function requestsOf({ frequencies, report: { activeRatio } }: SparseLayer): Float32Array {
  const needed = frequencies.reduce((sum, frequency) => sum + frequency, 0) / Math.max(1, frequencies.length);
  const others = Math.max(0, activeRatio - needed) / Math.max(1 - needed, 1e-9);
  return frequencies.map((frequency) => Math.min(1, frequency + (1 - frequency) * others));
}

export function itemBytes({ matrices }: TierableLayer): number {
  return matrices.reduce((sum, { dtype, itemShape }) => sum + tensorBytes(dtype, itemShape), 0);
}

/** Number of unpinned slots: whole groups of neurons, the unit of sums. */
function workingSlots({ kind, maxActive }: TierCandidate, maxPasses: number): number {
  const group = kind === 'neuron' ? neuronGroup : 1;
  return Math.max(1, Math.ceil(maxActive / maxPasses / group)) * group;
}

function readSizes(
  candidates: readonly TierCandidate[],
  stagingShare: number,
): { readonly reads: ReadSizes; readonly stagingBytes: number } {
  let totalBytes = 0;
  let largest = 0;
  for (const candidate of candidates) {
    totalBytes += itemBytes(candidate) * candidate.numItems;
    for (const { dtype, itemShape } of candidate.matrices) largest = Math.max(largest, tensorBytes(dtype, itemShape));
  }
  const share = Math.floor(totalBytes * stagingShare);
  const readBytes = Math.max(Math.min(longestRead, Math.floor(share / 4)), shortestRead);
  const maxReads = Math.max(2, Math.min(maxConcurrentReads, Math.floor(share / Math.max(readBytes, largest))));
  const reads = { readBytes, maxReads, maxGapBytes: Math.min(longestGap, readBytes) };
  return { reads, stagingBytes: neuronStagingBytes(largest, reads) };
}

/**
 * @param budgetBytes the memory for the items of the candidates and for reading them
 * @throws {CapacityError} when that is too little; `needed` is the smallest that works
 */
export function planWeightTiers(
  candidates: readonly TierCandidate[],
  budgetBytes: number,
  options: MemoryOptions,
): WeightTierPlan {
  let error: unknown;
  for (const style of styles) {
    try {
      return planWithStyle(candidates, Math.max(0, budgetBytes), options, style);
    } catch (thrown) {
      if (!CapacityError.isInstance(thrown)) throw thrown;
      error = thrown;
    }
  }
  throw error;
}

function planWithStyle(
  candidates: readonly TierCandidate[],
  budgetBytes: number,
  { hot = 'fitting', warm: warmEncoding = 'same', cold: coldEncoding = 'file' }: MemoryOptions,
  { maxPasses, stagingShare, isRoomy }: TierStyle,
): WeightTierPlan {
  const { stagingBytes, reads } = readSizes(candidates, stagingShare);
  const plan: NeuronTierPlan = planNeuronTiers({
    budgetBytes,
    stagingBytes,
    layers: candidates.map((candidate) => {
      const { matrices, numItems, frequencies } = candidate;
      const working = Math.min(numItems, workingSlots(candidate, maxPasses));
      return {
        numItems,
        ...neuronItemBytes(
          matrices.map(({ dtype, itemShape }) => ({ dtype, valuesPerItem: numElements(itemShape) })),
          warmEncoding,
          coldEncoding,
        ),
        ...(frequencies === undefined ? {} : { frequencies }),
        ...(hot === 'all' ? { leastHot: candidate.numHot } : {}),
        ...(isRoomy && frequencies !== undefined ? { leastWorkingSlots: working } : { workingSlots: working }),
      };
    }),
  });
  let [coldBytes, numItems, numSlots, numPinned] = [0, 0, 0, 0];
  const layers = candidates.flatMap((candidate, index): PlannedTierLayer[] => {
    const planned = plan.layers[index] as NeuronTierPlan['layers'][number];
    numItems += candidate.numItems;
    numSlots += planned.slots;
    numPinned += planned.hot.length;
    coldBytes += (candidate.numItems - planned.slots) * itemBytes(candidate);
    // a layer with a slot for every item is an ordinary weight
    return planned.slots >= candidate.numItems
      ? []
      : [{ ...candidate, ...planned, numPinned: planned.hot.length, frequencies: candidate.frequencies }];
  });
  return {
    layers,
    byLayer: new Map(layers.map((layer) => [layer.layer, layer])),
    kind: candidates[0]?.kind ?? 'neuron',
    warmEncoding,
    coldEncoding,
    reads,
    warmBytes: plan.warmBytes,
    stagingBytes: plan.stagingBytes + plan.bookkeepingBytes,
    plannedBytes: plan.totalBytes,
    coldBytes,
    copyBytes: plan.coldBytes,
    numItems,
    numSlots,
    numPinned,
  };
}
