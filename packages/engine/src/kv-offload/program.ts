/**
 * Attention over pages that are not in the pool. The program of a step writes each layer's queries to a buffer, stops
 * at a boundary, and then merges its attention over the pool with the partial states in other buffers. In between the
 * host runs small programs: each merges a chunk of pages in a staging buffer into these states. Rows of these buffers
 * belong to tokens of sequences that have such pages; the last row is the empty state of the others.
 */
import {
  externalKv,
  ProgramBuilder,
  type LayerAttention,
  type AttentionLowering,
  type Dim,
  type KvRows,
  type OpInputs,
  type Program,
  type ProgramTensor,
} from '@winnow/ops';
import type { PageTopKPolicy } from '@winnow/sparse-attention';
import type { TierAttention } from './attention.js';

/** Scalar slots `[T]` of a step: where a token's query goes, -1 for nowhere, and which row its state comes from. */
export const offloadScalars = { queryRows: 'tierQueryRows', stateRows: 'tierStateRows' } as const;

/** Names of the buffers of queries and states, and of the chunks that are read and computed in turn. */
export interface TierBuffers {
  readonly queries: string;
  readonly maxima: string;
  readonly sums: string;
  readonly outputs: string;
  readonly keys: string;
  readonly values: string;
  readonly slotPositions: string;
  readonly chosenKeys: string;
  readonly chosenValues: string;
  readonly chosenPositions: string;
}

/** The buffers that all layers with KV heads of these sizes share. */
export function tierBuffersOf({ numKvHeads, headDim, valueDim }: Omit<KvRows, 'blockSize' | 'dtype'>): TierBuffers {
  const name = (kind: string): string => `tier.${numKvHeads}x${headDim}x${valueDim}.${kind}`;
  return {
    queries: name('queries'),
    maxima: name('maxima'),
    sums: name('sums'),
    outputs: name('outputs'),
    keys: name('keys'),
    values: name('values'),
    slotPositions: name('slotPositions'),
    chosenKeys: name('chosenKeys'),
    chosenValues: name('chosenValues'),
    chosenPositions: name('chosenPositions'),
  };
}

/** Chunks in memory: one that is being computed, and those that are read meanwhile, so that the disk is never idle. */
export const numStages = 3;

/** The shape of a layer's attention over a chunk; layers with equal shapes share a program. */
export interface StreamShape extends KvRows {
  readonly numHeads: number;
  readonly scale: number;
  readonly window: number;
  /** Whether the window is a chunk. */
  readonly chunked: boolean;
  readonly softCap: number;
}

/** A layer that attends. */
export interface TieredLayer {
  readonly layer: number;
  /** The layer whose keys and values it attends to. */
  readonly kvLayer: number;
  /** Name of the boundary at which its queries are available. */
  readonly boundary: string;
  readonly shape: StreamShape;
  /** When it attends only to pages that it chooses, for generated tokens. */
  readonly policy: PageTopKPolicy | undefined;
}

interface TierTensors {
  readonly queries: ProgramTensor; // [rows + 1, N * H]
  readonly maxima: ProgramTensor; // [rows + 1, N]
  readonly sums: ProgramTensor; // [rows + 1, N]
  readonly outputs: ProgramTensor; // [rows + 1, N * D]
}

type HeadShape = Pick<StreamShape, 'numHeads' | 'headDim' | 'valueDim'>;

function tierTensors(
  b: ProgramBuilder,
  names: TierBuffers,
  { numHeads, headDim, valueDim }: HeadShape,
  numRows: number,
): TierTensors {
  const rows = (name: string, width: number): ProgramTensor =>
    b.external(name, 'kv', 'f32', [numRows, numHeads * width]);
  return {
    queries: rows(names.queries, headDim),
    maxima: rows(names.maxima, 1),
    sums: rows(names.sums, 1),
    outputs: rows(names.outputs, valueDim),
  };
}

/** The states of rows, as inputs of a merge. */
function gatherStates(
  b: ProgramBuilder,
  { maxima, sums, outputs }: TierTensors,
  rows: ProgramTensor,
  { numHeads, valueDim }: Omit<HeadShape, 'headDim'>,
): { readonly m: ProgramTensor; readonly l: ProgramTensor; readonly o: ProgramTensor } {
  const gather = (x: ProgramTensor): ProgramTensor => b.activation('gather-rows', { x, rows });
  return {
    m: b.reshape(gather(maxima), [1, 'T', numHeads]),
    l: b.reshape(gather(sums), [1, 'T', numHeads]),
    o: b.reshape(gather(outputs), [1, 'T', numHeads, valueDim]),
  };
}

function shapeOf({ q, kv, scale, window, chunked = false, softCap }: LayerAttention): StreamShape {
  const [, numHeads, headDim] = q.shape;
  const [, numKvHeads, blockSize] = kv.keys.shape;
  return {
    numHeads: Number(numHeads),
    headDim: Number(headDim),
    valueDim: Number(kv.values.shape[3]),
    numKvHeads: Number(numKvHeads),
    blockSize: Number(blockSize),
    dtype: { keys: kv.keys.dtype, values: kv.values.dtype },
    scale,
    window,
    chunked,
    softCap,
  };
}

/** Options of the attention lowering of one program. */
export interface TieredAttentionOptions {
  /** Number of rows in the buffers of queries and states, without the empty one. */
  readonly numRows: number;
  /** Number of split-KV partitions of the attention over the pool. */
  readonly numParts: number;
  readonly attention: Pick<TierAttention, 'choosing' | 'appendSideData'>;
  /** Whether layers with page selection select pages: true for decode programs. */
  readonly mayChoose: boolean;
  /** Called for each layer. */
  readonly onLayer: (layer: TieredLayer) => void;
}

/** The scalar slots of `offloadScalars`. */
interface TierRows {
  readonly queryRows: ProgramTensor;
  readonly stateRows: ProgramTensor;
}

/** The attention lowering of one program whose sequences may have pages outside the pool. */
export class TieredAttention {
  readonly #options: TieredAttentionOptions;
  #rows: TierRows | undefined;

  constructor(options: TieredAttentionOptions) {
    this.#options = options;
  }

  readonly lower: AttentionLowering = (b, node) => {
    const { numRows, numParts, attention, mayChoose, onLayer } = this.#options;
    const { layer, kvLayer = layer, q, positions, sequences, kv, sinkLogits } = node;
    const { queryRows, stateRows } = this.#rowsIn(b);
    const shape = shapeOf(node);
    const { scale, window, chunked, softCap } = shape;
    const boundary = `tiers.${layer}`;
    const tensors = tierTensors(b, tierBuffersOf(shape), shape, numRows + 1);
    const policy = attention.choosing.get(layer);
    attention.appendSideData(b, node);
    const x = b.reshape(q, ['T', shape.numHeads * shape.headDim]);
    b.append('scatter-rows', { x, rows: queryRows }, {}, { y: tensors.queries });
    b.boundary(boundary);
    onLayer({ layer, kvLayer, boundary, shape, policy });
    const cold = gatherStates(b, tensors, stateRows, shape);
    if (mayChoose && policy !== undefined) return finish(b, cold, sinkLogits);
    const attributes = { scale, window, chunked, softCap, numParts };
    const hot = b.append('attention-partial', { q, positions, sequences, ...kv }, attributes);
    const { m: m2, l: l2, o: o2 } = cold;
    return finish(b, b.append('attention-merge', { ...hot, m2, l2, o2 }), sinkLogits);
  };

  #rowsIn(b: ProgramBuilder): TierRows {
    return (this.#rows ??= {
      queryRows: b.scalar(offloadScalars.queryRows, ['T']),
      stateRows: b.scalar(offloadScalars.stateRows, ['T']),
    });
  }
}

function finish(b: ProgramBuilder, { m, l, o }: OpInputs, sinkLogits: ProgramTensor | undefined): ProgramTensor {
  return b.activation('attention-finish', sinkLogits === undefined ? { l, o } : { l, o, m, sinkLogits });
}

/** Sizes of a program that merges a chunk into the states. */
export interface StreamSizes {
  readonly maxTokens: number;
  /** As in `TieredAttentionOptions`. */
  readonly numRows: number;
  /** Blocks of one chunk, of which the staging buffers hold `numStages`. */
  readonly chunkBlocks: number;
  readonly numParts: number;
}

/** Blocks of the staging buffers, and how a program reads them. */
interface Staging {
  readonly names: Readonly<Record<'keys' | 'values' | 'slotPositions', string>>;
  readonly numBlocks: number;
  readonly blockSize: number;
  /**
   * Number of parts of a token's KV heads, each with its own block table: 1, or one per KV head.
   */
  readonly numSplits: number;
  readonly scalars: Readonly<Record<'blockTable' | 'contextLengths', readonly Dim[]>>;
}

/**
 * A program that merges the attention of rows of queries over a chunk of one sequence into their states. Scalar slots:
 * `rows` and `positions` `[T]`, `blockTable` `[1, chunkBlocks]`, `contextLengths` `[1]`.
 */
export function buildStreamProgram(shape: StreamShape, sizes: StreamSizes): Program {
  return buildAddition(shape, sizes, {
    names: tierBuffersOf(shape),
    numBlocks: numStages * sizes.chunkBlocks,
    blockSize: shape.blockSize,
    numSplits: 1,
    scalars: { blockTable: [1, sizes.chunkBlocks], contextLengths: [1] },
  });
}

/** Sizes of a program that merges selected pages into the states. */
export interface ChosenSizes extends StreamSizes {
  readonly pageSize: number;
  /** Capacity of one half of the staging buffers in pages; `chunkBlocks` is the maximum per query and KV head. */
  readonly stagedPages: number;
}

/**
 * A program that merges the attention of queries over their own pages, different ones per KV head, into their states.
 * Its tokens are the query heads of one KV head each, `row * K + head`, and its blocks pages of one KV head. Scalar
 * slots: as above and `sequences`, `blockTable` `[T, chunkBlocks]`, `contextLengths` `[T]`.
 */
export function buildChosenProgram(shape: StreamShape, sizes: ChosenSizes): Program {
  const { chosenKeys, chosenValues, chosenPositions } = tierBuffersOf(shape);
  return buildAddition(shape, sizes, {
    names: { keys: chosenKeys, values: chosenValues, slotPositions: chosenPositions },
    numBlocks: 2 * sizes.stagedPages,
    blockSize: sizes.pageSize,
    numSplits: shape.numKvHeads,
    scalars: { blockTable: ['T', sizes.chunkBlocks], contextLengths: ['T'] },
  });
}

function buildAddition(shape: StreamShape, sizes: StreamSizes, staging: Staging): Program {
  const { headDim, valueDim, dtype, scale, window, chunked, softCap } = shape;
  const { blockSize, numSplits, scalars } = staging;
  const [numHeads, numKvHeads] = [shape.numHeads / numSplits, shape.numKvHeads / numSplits];
  const b = new ProgramBuilder({ T: sizes.maxTokens * numSplits });
  const heads = { numHeads, headDim, valueDim };
  const tensors = tierTensors(b, tierBuffersOf(shape), heads, (sizes.numRows + 1) * numSplits);
  const rows = b.scalar('rows', ['T']);
  const inputs = {
    q: b.reshape(b.activation('gather-rows', { x: tensors.queries, rows }), ['T', numHeads, headDim]),
    positions: b.scalar('positions', ['T']),
    sequences: b.scalar('sequences', ['T']),
    ...externalKv(b, { blockSize, numKvHeads, headDim, valueDim, dtype }, staging.numBlocks, staging.names),
    blockTable: b.scalar('blockTable', scalars.blockTable),
    contextLengths: b.scalar('contextLengths', scalars.contextLengths),
  };
  const { numParts } = sizes;
  const attributes = { scale, window, chunked, softCap, numParts };
  const { m: m2, l: l2, o: o2 } = b.append('attention-partial', inputs, attributes);
  const states = gatherStates(b, tensors, rows, { numHeads, valueDim });
  const { m, l, o } = b.append('attention-merge', { ...states, m2, l2, o2 }) as Record<'m' | 'l' | 'o', ProgramTensor>;
  const store = (x: ProgramTensor, width: number, y: ProgramTensor): void =>
    void b.append('scatter-rows', { x: b.reshape(x, ['T', numHeads * width]), rows }, {}, { y });
  store(o, valueDim, tensors.outputs);
  store(l, 1, tensors.sums);
  store(m, 1, tensors.maxima);
  return b.build();
}
