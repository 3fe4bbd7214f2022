/**
 * Programs whose experts or FFN neurons are not all in memory. Each layer has slots and stops at a boundary before it
 * computes: the host reads the active items from an output, loads them into slots, and writes their locations to small
 * buffers. Items that do not fit the slots at once are computed in several passes, each after its own boundary.
 */
import type { ExpertMatrix, ExpertPass, ExpertPlacement } from '@winnow/models';
import {
  neuronGroup,
  type FeedForwardLowering,
  type NeuronPass,
  type ProgramBuilder,
  type ProgramTensor,
} from '@winnow/ops';
import type { SparseFeedForwardLowering } from '@winnow/sparse-inference';
import type { DType } from '@winnow/tensor';
import { slotPrefix } from '../memory/program-buffers.js';

/** One matrix of every item of a layer. */
export interface TieredMatrix {
  readonly matrix: ExpertMatrix;
  /** The weight that holds the matrices of all items along its first axis. */
  readonly weightName: string;
  readonly dtype: DType;
  /** Without the first axis. */
  readonly itemShape: readonly number[];
}

/** A layer whose items may be offloaded. */
export interface TierableLayer {
  readonly layer: number;
  readonly kind: 'expert' | 'neuron';
  readonly numItems: number;
  readonly matrices: readonly TieredMatrix[];
}

/** A layer with fewer slots than items. */
export interface TieredLayer extends TierableLayer {
  readonly slots: number;
  /** Items that never leave their slots. */
  readonly numPinned: number;
}

export const slotNames = {
  /** `[S, ...itemShape]` */
  matrix: (layer: number, matrix: ExpertMatrix): string => `${slotPrefix}${layer}.${matrix}`,
  /**
   * Written by the host: for experts `[X]` the slot of each, for neurons `[F]` ids and rows, and `[1]` their number.
   */
  map: (layer: number): string => `${slotPrefix}${layer}.map`,
  ids: (layer: number): string => `${slotPrefix}${layer}.ids`,
  rows: (layer: number): string => `${slotPrefix}${layer}.rows`,
  count: (layer: number): string => `${slotPrefix}${layer}.count`,
} as const;

/** Outputs that the host reads at a boundary, or after the step. */
export const choiceNames = {
  ids: (layer: number): string => `choice.${layer}.ids`,
  count: (layer: number): string => `choice.${layer}.count`,
  /** Items predicted for a later layer. */
  predictedIds: (layer: number): string => `choice.${layer}.predictedIds`,
  predictedCount: (layer: number): string => `choice.${layer}.predictedCount`,
} as const;

function boundaryName(layer: number, pass: number): string {
  return `${slotPrefix}${layer}.pass.${pass}`;
}

/** The layer and the pass of a boundary of this module. */
export function parseBoundary(name: string): { readonly layer: number; readonly pass: number } | undefined {
  const [, layer, pass] = /^slots\.(\d+)\.pass\.(\d+)$/.exec(name) ?? [];
  return layer === undefined ? undefined : { layer: Number(layer), pass: Number(pass) };
}

/**
 * Number of passes that `maxActive` items of a layer may need; pinned ones need no other slots. Passes of neurons are
 * in ascending order, and all but the last have whole groups, so that sums have the same bits as in one pass.
 */
export function countPasses({ kind, numItems, slots, numPinned }: TieredLayer, maxActive: number): number {
  const numFree = slots - numPinned;
  const numOthers = Math.min(maxActive, numItems - numPinned);
  if (kind === 'expert' || numOthers <= numFree) return Math.max(1, Math.ceil(numOthers / numFree));
  // a pass has at least the whole groups that the free slots hold, and all free slots except part of a group
  const byGroups = Math.ceil(maxActive / (numFree - (numFree % neuronGroup)));
  return Math.min(byGroups, 1 + Math.ceil((numOthers - numFree) / (numFree - neuronGroup + 1)));
}

function slotTensor(b: ProgramBuilder, { layer, slots }: TieredLayer, matrix: TieredMatrix): ProgramTensor {
  // declared as a cache, so that the backend does not repack what the host writes
  return b.external(slotNames.matrix(layer, matrix.matrix), 'kv', matrix.dtype, [slots, ...matrix.itemShape]);
}

function tensorOf(b: ProgramBuilder, layer: TieredLayer, name: ExpertMatrix): ProgramTensor | undefined {
  const found = layer.matrices.find(({ matrix }) => matrix === name);
  return found && slotTensor(b, layer, found);
}

/** The next layer to prefetch for. */
export type NextLayer = (layer: number) => TieredLayer | undefined;

/** @param maxTokens per step of the program */
export function createExpertPlacement(
  tiered: ReadonlyMap<number, TieredLayer>,
  maxTokens: number,
  nextOf: NextLayer,
): ExpertPlacement {
  function* passes(
    b: ProgramBuilder,
    layer: TieredLayer,
    { ids, numExperts, numChosen, predict }: Parameters<ExpertPlacement>[1],
  ): Iterable<ExpertPass> {
    b.output(choiceNames.ids(layer.layer), ids);
    const next = nextOf(layer.layer);
    // if a step may need all experts, there is nothing to predict
    if (next !== undefined && maxTokens * numChosen < numExperts) {
      b.setLayer(next.layer);
      const predicted = predict(next.layer);
      b.setLayer(layer.layer);
      if (predicted !== undefined) b.output(choiceNames.predictedIds(layer.layer), predicted);
    }
    const slots = b.external(slotNames.map(layer.layer), 'kv', 'i32', [numExperts]);
    const numPasses = countPasses(layer, Math.min(numExperts, maxTokens * numChosen));
    for (let pass = 0; pass < numPasses; pass++) {
      b.boundary(boundaryName(layer.layer, pass));
      yield { slots, matrix: (name) => tensorOf(b, layer, name) as ProgramTensor };
    }
  }
  return (b, node) => {
    const layer = tiered.get(node.layer);
    return layer === undefined ? undefined : passes(b, layer, node);
  };
}

/**
 * The sparse FFN lowering: counts become outputs, and neurons may be in slots.
 * @param onLayer called for each sparse layer
 * @param maxTokens per step of the program
 */
export function createNeuronLowering(
  lowerFfn: SparseFeedForwardLowering,
  tiered: ReadonlyMap<number, TieredLayer>,
  maxTokens: number,
  nextOf: NextLayer,
  onLayer: (layer: number, ffnDim: number) => void,
): FeedForwardLowering {
  return (b, node) => {
    const layer = tiered.get(node.layer);
    const slot = (name: ExpertMatrix): ProgramTensor | undefined => layer && tensorOf(b, layer, name);
    function* passes(ids: ProgramTensor, count: ProgramTensor): Iterable<NeuronPass> {
      onLayer(node.layer, node.ffnDim);
      b.output(choiceNames.count(node.layer), count);
      if (layer === undefined) {
        yield { ids, rows: ids, count };
        return;
      }
      b.output(choiceNames.ids(node.layer), ids);
      const next = maxTokens === 1 ? nextOf(node.layer) : undefined;
      if (next !== undefined) {
        b.setLayer(next.layer);
        const predicted = lowerFfn.predict(b, next.layer, node.x);
        b.setLayer(node.layer);
        if (predicted !== undefined) {
          b.output(choiceNames.predictedIds(node.layer), predicted.ids);
          b.output(choiceNames.predictedCount(node.layer), predicted.count);
        }
      }
      const words = (name: string, length: number): ProgramTensor => b.external(name, 'kv', 'i32', [length]);
      const pass = {
        ids: words(slotNames.ids(node.layer), node.ffnDim),
        rows: words(slotNames.rows(node.layer), node.ffnDim),
        count: words(slotNames.count(node.layer), 1),
      };
      const numPasses = countPasses(layer, node.ffnDim);
      for (let index = 0; index < numPasses; index++) {
        b.boundary(boundaryName(node.layer, index));
        yield pass;
      }
    }
    const { gate, neurons, ...others } = node;
    return lowerFfn(b, {
      ...others,
      // slots hold separate matrices
      ...(neurons === undefined || layer !== undefined ? {} : { neurons: () => neurons() }),
      ...(gate === undefined ? {} : { gate: () => slot('gate') ?? gate() }),
      up: () => slot('up') ?? node.up(),
      downRows: () => slot('down') ?? node.downRows(),
      passes,
    });
  };
}
