/**
 * Programs whose experts or FFN neurons are not all in memory. Each layer has slots, and stops at a boundary before it
 * computes: the host learns from an output what was chosen, brings it into slots, and says in small buffers where it is.
 * What does not fit the slots at once is computed in several passes, each behind a boundary of its own.
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
  /** The weight that holds those of all items, along its first axis. */
  readonly weightName: string;
  readonly dtype: DType;
  /** Without the first axis. */
  readonly itemShape: readonly number[];
}

/** A layer whose items may be in tiers. */
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
  /** Written by the host: for experts `[X]` where each is, for neurons `[F]` ids and rows, and `[1]` their number. */
  map: (layer: number): string => `${slotPrefix}${layer}.map`,
  ids: (layer: number): string => `${slotPrefix}${layer}.ids`,
  rows: (layer: number): string => `${slotPrefix}${layer}.rows`,
  count: (layer: number): string => `${slotPrefix}${layer}.count`,
} as const;

/** Outputs that the host reads at a boundary, or after the step. */
export const choiceNames = {
  ids: (layer: number): string => `choice.${layer}.ids`,
  count: (layer: number): string => `choice.${layer}.count`,
  /** What a layer after this one will probably choose. */
  guessIds: (layer: number): string => `choice.${layer}.guessIds`,
  guessCount: (layer: number): string => `choice.${layer}.guessCount`,
} as const;

export function boundaryName(layer: number, pass: number): string {
  return `${slotPrefix}${layer}.pass.${pass}`;
}

/** The layer and the pass of a boundary of this module. */
export function parseBoundary(name: string): { readonly layer: number; readonly pass: number } | undefined {
  const [, layer, pass] = /^slots\.(\d+)\.pass\.(\d+)$/.exec(name) ?? [];
  return layer === undefined ? undefined : { layer: Number(layer), pass: Number(pass) };
}

/**
 * Passes that `maxActive` items of a layer may need: pinned ones take no room of others. Passes of neurons are in ascending
 * order, and all but the last have whole groups of them, so that sums have the bits of one pass.
 */
export function countPasses({ kind, numItems, slots, numPinned }: TieredLayer, maxActive: number): number {
  const numFree = slots - numPinned;
  const numOthers = Math.min(maxActive, numItems - numPinned);
  if (kind === 'expert' || numOthers <= numFree) return Math.max(1, Math.ceil(numOthers / numFree));
  // a pass has at least the whole groups that the free slots hold; and all of the free slots but for a part of a group
  const byGroups = Math.ceil(maxActive / (numFree - (numFree % neuronGroup)));
  return Math.min(byGroups, 1 + Math.ceil((numOthers - numFree) / (numFree - neuronGroup + 1)));
}

function slotTensor(b: ProgramBuilder, { layer, slots }: TieredLayer, matrix: TieredMatrix): ProgramTensor {
  // a cache for the backend: it must not rearrange what the host writes into
  return b.external(slotNames.matrix(layer, matrix.matrix), 'kv', matrix.dtype, [slots, ...matrix.itemShape]);
}

function tensorOf(b: ProgramBuilder, layer: TieredLayer, name: ExpertMatrix): ProgramTensor | undefined {
  const found = layer.matrices.find(({ matrix }) => matrix === name);
  return found && slotTensor(b, layer, found);
}

/** The next layer that is read ahead for. */
export type NextLayer = (layer: number) => TieredLayer | undefined;

/** @param maxTokens of a step of the program */
export function createExpertPlacement(
  tiered: ReadonlyMap<number, TieredLayer>,
  maxTokens: number,
  nextOf: NextLayer,
): ExpertPlacement {
  function* passes(
    b: ProgramBuilder,
    layer: TieredLayer,
    { ids, numExperts, numChosen, guess }: Parameters<ExpertPlacement>[1],
  ): Iterable<ExpertPass> {
    b.output(choiceNames.ids(layer.layer), ids);
    const next = nextOf(layer.layer);
    // where a step may need all experts, there is nothing to guess
    if (next !== undefined && maxTokens * numChosen < numExperts) {
      b.setLayer(next.layer);
      const guessed = guess(next.layer);
      b.setLayer(layer.layer);
      if (guessed !== undefined) b.output(choiceNames.guessIds(layer.layer), guessed);
    }
    const slots = b.external(slotNames.map(layer.layer), 'kv', 'i32', [numExperts]);
    const numPasses = countPasses(layer, Math.min(numExperts, maxTokens * numChosen));
    for (let pass = 0; pass < numPasses; pass++) {
      b.boundary(boundaryName(layer.layer, pass));
      yield { slots, matrix: (name) => tensorOf(b, layer, name) as ProgramTensor };
    }
  }
  return (b, site) => {
    const layer = tiered.get(site.layer);
    return layer === undefined ? undefined : passes(b, layer, site);
  };
}

/**
 * A writer that skips neurons, whose counts become outputs, and whose neurons may be in slots.
 * @param onLayer hears of the layers that skip neurons
 * @param maxTokens of a step of the program
 */
export function createNeuronWriter(
  write: SparseFeedForwardLowering,
  tiered: ReadonlyMap<number, TieredLayer>,
  maxTokens: number,
  nextOf: NextLayer,
  onLayer: (layer: number, ffnDim: number) => void,
): FeedForwardLowering {
  return (b, site) => {
    const layer = tiered.get(site.layer);
    const slot = (name: ExpertMatrix): ProgramTensor | undefined => layer && tensorOf(b, layer, name);
    function* passes(ids: ProgramTensor, count: ProgramTensor): Iterable<NeuronPass> {
      onLayer(site.layer, site.ffnDim);
      b.output(choiceNames.count(site.layer), count);
      if (layer === undefined) {
        yield { ids, rows: ids, count };
        return;
      }
      b.output(choiceNames.ids(site.layer), ids);
      const next = maxTokens === 1 ? nextOf(site.layer) : undefined;
      if (next !== undefined) {
        b.setLayer(next.layer);
        const guess = write.predict(b, next.layer, site.x);
        b.setLayer(site.layer);
        if (guess !== undefined) {
          b.output(choiceNames.guessIds(site.layer), guess.ids);
          b.output(choiceNames.guessCount(site.layer), guess.count);
        }
      }
      const words = (name: string, length: number): ProgramTensor => b.external(name, 'kv', 'i32', [length]);
      const pass = {
        ids: words(slotNames.ids(site.layer), site.ffnDim),
        rows: words(slotNames.rows(site.layer), site.ffnDim),
        count: words(slotNames.count(site.layer), 1),
      };
      const numPasses = countPasses(layer, site.ffnDim);
      for (let index = 0; index < numPasses; index++) {
        b.boundary(boundaryName(site.layer, index));
        yield pass;
      }
    }
    const { gate, neurons, ...others } = site;
    return write(b, {
      ...others,
      // slots have a matrix each
      ...(neurons === undefined || layer !== undefined ? {} : { neurons: () => neurons() }),
      ...(gate === undefined ? {} : { gate: () => slot('gate') ?? gate() }),
      up: () => slot('up') ?? site.up(),
      downRows: () => slot('down') ?? site.downRows(),
      passes,
    });
  };
}
