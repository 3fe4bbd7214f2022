/** Divides what a memory limit leaves for weights: which layers have slots, how many, and what goes with them. */
import {
  downRowsName,
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

/** Longest stretch that is read at once, and least. */
const [longestRead, shortestRead] = [256 * 1024, 4 * 1024];
const mostReads = 8;

/** How a budget is divided. */
interface TierStyle {
  /** Most passes of a layer: each is a boundary where the host looks. */
  readonly maxPasses: number;
  /** Of what may be in tiers, the most that is spent on buffers for reading, if two reads need no more. */
  readonly stagingShare: number;
  /** Slots that are not pinned for what is active at a time; otherwise for as many passes as there may be. */
  readonly isRoomy: boolean;
}

/**
 * The first one that the budget suffices for is taken. A pass costs time also when nothing is left for it, and slots that any
 * neuron may take hold what is needed often as pinned ones do.
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
}

/** A layer with its items in tiers. */
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
  /** All of what was planned: slots, also of layers that have one for each item, and the two above. */
  readonly plannedBytes: number;
  /** What the slots leave to the file, or to the copy in 4 bits. */
  readonly coldBytes: number;
  /** That copy. */
  readonly copyBytes: number;
  /** All items of the candidates, and those that can have a place at a time. */
  readonly numItems: number;
  readonly numSlots: number;
  /** Of those places the ones that their items keep. */
  readonly numPinned: number;
}

/** A layer that could be in tiers, and how often its items are needed. */
export interface TierCandidate extends TierableLayer {
  readonly frequencies: Float32Array | undefined;
  /** How many the calibration classifies as hot. */
  readonly numHot: number;
  /** Items that a step may need at once. */
  readonly maxActive: number;
}

/** Only what is stored as it is computed with can be read item by item. */
function matrixOf(
  weights: ReadonlyMap<string, Weight>,
  weightName: string,
  matrix: ExpertMatrix,
): TieredMatrix | undefined {
  const weight = weights.get(weightName);
  if (weight === undefined || weight.stored.dtype !== weight.dtype || weight.shape.length < 2) return undefined;
  return { matrix, weightName, dtype: weight.dtype, itemShape: weight.shape.slice(1) };
}

/** The layers whose experts can be in tiers. @param maxTokens of a step */
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
    const isFused = weights.has(expertMatrixName(layer, 'gate_up'));
    const names: readonly ExpertMatrix[] = isFused ? ['gate_up', 'down'] : ['gate', 'up', 'down'];
    const matrices = names.map((name) => matrixOf(weights, expertMatrixName(layer, name), name));
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

/** The layers whose neurons can be in tiers: those that a sidecar tells how to skip. Adapters need all neurons. */
export function neuronCandidates(
  { sidecar, writer }: Pick<SparseWeights, 'sidecar' | 'writer'>,
  weights: ReadonlyMap<string, Weight>,
): TierCandidate[] {
  const candidates: TierCandidate[] = [];
  for (const sparse of sidecar.layers) {
    const { layer, ffnDim } = sparse;
    const names = feedForwardNames(layer);
    if (Object.values(names).some((name) => weights.has(`${name}.lora_a`))) continue;
    const weightName = (matrix: 'gate' | 'up' | 'down'): string =>
      matrix === 'down' ? downRowsName(layer) : `${names[matrix]}.weight`;
    const matrices = writer.matrices(layer).map((name) => matrixOf(weights, weightName(name), name));
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

/** How often each neuron is asked for: when it is needed, and as often as any other when it is not. */
function requestsOf({ frequencies, report: { activeRatio } }: SparseLayer): Float32Array {
  const needed = frequencies.reduce((sum, frequency) => sum + frequency, 0) / Math.max(1, frequencies.length);
  const others = Math.max(0, activeRatio - needed) / Math.max(1 - needed, 1e-9);
  return frequencies.map((frequency) => Math.min(1, frequency + (1 - frequency) * others));
}

export function itemBytes({ matrices }: TierableLayer): number {
  return matrices.reduce((sum, { dtype, itemShape }) => sum + tensorBytes(dtype, itemShape), 0);
}

/** Slots that are not pinned: whole groups of neurons, of which sums are made. */
function workingSlots({ kind, maxActive }: TierCandidate, maxPasses: number): number {
  const group = kind === 'neuron' ? neuronGroup : 1;
  return Math.max(1, Math.ceil(maxActive / maxPasses / group)) * group;
}

function readSizes(
  candidates: readonly TierCandidate[],
  stagingShare: number,
): ReadSizes & { readonly stagingBytes: number } {
  let totalBytes = 0;
  let largest = 0;
  for (const candidate of candidates) {
    totalBytes += itemBytes(candidate) * candidate.numItems;
    for (const { dtype, itemShape } of candidate.matrices) largest = Math.max(largest, tensorBytes(dtype, itemShape));
  }
  const share = Math.floor(totalBytes * stagingShare);
  const readBytes = Math.max(Math.min(longestRead, Math.floor(share / 4)), shortestRead);
  const maxReads = Math.max(2, Math.min(mostReads, Math.floor(share / Math.max(readBytes, largest))));
  return { readBytes, maxReads, stagingBytes: neuronStagingBytes(largest, { readBytes, maxReads }) };
}

/**
 * @param budgetBytes what there is for the items of the candidates, and for reading them
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
  const { stagingBytes, ...reads } = readSizes(candidates, stagingShare);
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
    // what has a slot for every item is an ordinary weight
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
