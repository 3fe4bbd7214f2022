/** Plans the tiers of the cache and the programs that attend across them. */
import { maxInvariantTokens, type AttentionLowering, type Program } from '@winnow/ops';
import { ArgumentError, CapacityError, sizeOf } from '@winnow/tensor';
import type { TierAttention } from './attention.js';
import {
  buildChosenProgram,
  buildStreamProgram,
  TieredAttention,
  type StreamShape,
  type TieredLayer,
} from './program.js';
import type { ColdFiles } from '../memory/cold-files.js';

/** Where pages beyond the backend's memory go, oldest first. Attention streams them back in chunks in each step. */
export interface KvOffloadOptions {
  /** Maximum size of the warm tier in bytes: memory outside the backend. Default 0. */
  readonly memory?: number;
  /**
   * The cold tier: a folder for temporary files (in browsers: of the page's origin), or an object that creates files.
   * Default: none.
   */
  readonly folder?: string | URL | ColdFiles;
}

/**
 * Budgets of the KV cache tiers, for contexts that do not fit in the backend's memory. Results are the same within
 * rounding.
 */
export interface KvTierOptions {
  /** Maximum size of the KV cache in the backend's memory, in bytes. Default: what `capacity` needs. */
  readonly budget?: number;
  /** Where the pages beyond the budget go. Default: nowhere, the whole cache is in the backend's memory. */
  readonly offload?: KvOffloadOptions;
}

/** Maximum size of the keys, or of the values, of one layer that are stored and read as one page. */
const maxPageBytes = 512 * 1024;
const maxRunBlocks = 32;
/** Maximum size of the keys and values of one layer that are attended to at once. */
const maxChunkBytes = 4 * 1024 * 1024;
/** Maximum number of runs in a chunk, which are read concurrently. */
const maxChunkRuns = 8;
/** Steps of at most this many tokens use split-KV attention. */
const maxSplitTokens = 8;
const numSplitParts = 4;
/** Maximum number of runs in a chunk of selected pages, which are stored and read one by one. */
const maxChosenChunkRuns = 64;
/**
 * Maximum size of the selected pages that are attended to at once, and maximum number of pages per query and KV head.
 */
const maxChosenBytes = 4 * 1024 * 1024;
const maxChosenPages = 64;

/** How the blocks of a cache are divided among tiers. */
export interface TierSizes {
  readonly hotBytes: number;
  readonly warmBytes: number;
  readonly cold: KvOffloadOptions['folder'];
  readonly numBlocks: number;
  /** Blocks that leave the pool together: what is stored and read at a time. */
  readonly runBlocks: number;
  /** Runs that are attended to at a time. */
  readonly chunkRuns: number;
}

/** Programs for layers of one shape: for small and for large batches. */
export interface StreamPrograms {
  readonly few: Program;
  readonly many: Program;
}

/** The program that attends to the pages that queries select. */
export interface ChosenProgram {
  readonly program: Program;
  /** Capacity of one half of the staging buffers in pages, and maximum number of pages per query and KV head. */
  readonly stagedPages: number;
  readonly maxPages: number;
}

export interface TierPlan {
  readonly sizes: TierSizes;
  readonly reads: TierAttention['reads'];
  /** Rows of the buffers of queries and states. */
  readonly numRows: number;
  /**
   * Like the programs without tiers, with a boundary in each layer; undefined if nothing outside the pool is attended
   * to. `decodeBatch` exists if prefill and decode use different policies and several sequences may decode together.
   */
  readonly steps: { readonly decode: Program; readonly batch: Program; readonly decodeBatch?: Program } | undefined;
  readonly layers: readonly TieredLayer[];
  /** By layer. */
  readonly streams: ReadonlyMap<number, StreamPrograms>;
  /** Maximum number of tokens of a sequence in a step for which its small program is used. */
  readonly maxFewTokens: number;
  readonly chosen: ReadonlyMap<number, ChosenProgram>;
  /** All of them. */
  readonly programs: readonly Program[];
}

/** The sizes, and the attention that they are for. */
export interface SizedTiers {
  readonly sizes: TierSizes;
  readonly attention: TierAttention;
}

interface SizeFacts {
  /** Bytes of a block over all layers. */
  readonly blockBytes: number;
  /** Bytes of a block of keys and values of one layer. */
  readonly keyRowBytes: number;
  readonly valueRowBytes: number;
  /** Number of blocks that all sessions may hold together. */
  readonly numAllBlocks: number;
  /** Blocks of a cache without tiers. */
  readonly numCacheBlocks: number;
  /** Maximum number of tokens and of sequences of a step. */
  readonly maxTokens: number;
  readonly maxSequences: number;
  readonly maxSessions: number;
  readonly blockSize: number;
}

/**
 * @returns `undefined` when everything fits the hot tier
 * @throws {ArgumentError} for invalid sizes
 * @throws {CapacityError} when the hot tier is too small for a step, or for the whole cache without further tiers
 */
export function sizeTiers(
  options: KvTierOptions | undefined,
  facts: SizeFacts,
  attention: () => TierAttention,
): SizedTiers | undefined {
  const { budget, offload } = options ?? {};
  if (budget === undefined && offload === undefined) return undefined;
  const { blockBytes, keyRowBytes, valueRowBytes, numAllBlocks, numCacheBlocks } = facts;
  const { maxTokens, maxSequences, blockSize } = facts;
  const hotBytes = bytes('kvCache.budget', budget, numCacheBlocks * blockBytes);
  const warmBytes = bytes('kvCache.offload.memory', offload?.memory, 0);
  const numBlocks = Math.floor(hotBytes / blockBytes);
  if (numBlocks >= numAllBlocks) {
    if (budget !== undefined) return undefined;
    const expected = 'a size, since only pages beyond it are offloaded';
    throw new ArgumentError({ argument: 'kvCache.budget', expected, actual: 'none' });
  }
  const isTiered = warmBytes > 0 || offload?.folder !== undefined;
  const own = isTiered ? attention() : undefined;
  // the first block and the newest ones never leave the pool
  const numNeeded =
    own === undefined
      ? numCacheBlocks
      : countStepBlocks(maxTokens, maxSequences, blockSize) + 3 + numKeptBlocks(own, facts);
  if (numBlocks < numNeeded) {
    const hint =
      own === undefined
        ? 'use kvCache.offload.memory or kvCache.offload.folder for the pages that do not fit'
        : smallerHint(own, facts);
    throw new CapacityError({
      resource: 'kvCache.budget',
      needed: numNeeded * blockBytes,
      available: hotBytes,
      unit: 'bytes',
      ...(hint === undefined ? {} : { hint }),
    });
  }
  if (own === undefined) return undefined;
  const isChosen = own.choosing.size > 0;
  const largest = Math.max(keyRowBytes, valueRowBytes);
  const maxBlocks = isChosen ? 1 : Math.min(maxRunBlocks, numBlocks >> 2);
  const runBlocks = clamp(Math.floor(maxPageBytes / largest), 1, maxBlocks);
  const runBytes = runBlocks * (keyRowBytes + valueRowBytes);
  const maxRuns = isChosen ? maxChosenChunkRuns : maxChunkRuns;
  const chunkRuns = clamp(Math.floor(maxChunkBytes / runBytes), 1, maxRuns);
  const sizes = { hotBytes, warmBytes, cold: offload?.folder, numBlocks, runBlocks, chunkRuns };
  return { sizes, attention: own };
}

/** The options of which a smaller value needs fewer blocks, if there are any. */
function smallerHint({ reads }: TierAttention, facts: SizeFacts): string | undefined {
  const { maxTokens, maxSequences, maxSessions, blockSize } = facts;
  const isWide = reads !== undefined && reads.window - 1 > blockSize;
  const canShrink = Math.ceil(maxTokens / blockSize) > Math.ceil(maxSequences / blockSize);
  const names = [
    ...(isWide ? ['window'] : []),
    ...(canShrink ? ['batchSize'] : []),
    ...(maxSessions > 1 ? ['maxSessions'] : []),
  ];
  return names.length === 0 ? undefined : `a smaller ${names.join(' or ')} reduces it`;
}

/** Number of blocks that all sessions together must keep in the pool. */
function numKeptBlocks({ reads }: TierAttention, { maxSessions, blockSize }: SizeFacts): number {
  if (reads === undefined) return 0;
  const ofSession = Math.ceil(reads.sinks / blockSize) + Math.ceil((reads.window - 1) / blockSize) + 2;
  return maxSessions * ofSession;
}

/** What programs are built for. */
export interface StepSizes {
  /** Maximum number of tokens of any step, and of a decode step of several sequences (one token each). */
  readonly maxTokens: number;
  readonly maxSequences: number;
  /**
   * Whether steps of up to `maxInvariantTokens` must have the bits of steps of one token: the pool is then attended to as a whole,
   * since its parts would depend on how many tokens the step adds, and all these steps use the same programs for chunks.
   */
  readonly isInvariant: boolean;
}

/** @param build builds the program of a step */
export function planTiers(
  { sizes, attention }: SizedTiers,
  { maxTokens, maxSequences, isInvariant }: StepSizes,
  build: (step: 'decode' | 'batch' | 'decodeBatch', attention: AttentionLowering) => Program,
): TierPlan {
  const { reads, choosing } = attention;
  const maxFewTokens = isInvariant ? maxInvariantTokens : maxSplitTokens;
  const noPrograms = { layers: [], streams: new Map(), maxFewTokens, chosen: new Map(), programs: [] };
  if (reads !== undefined) return { sizes, reads, numRows: 0, steps: undefined, ...noPrograms };
  const layers = new Map<number, TieredLayer>();
  const onLayer = (layer: TieredLayer): void => void layers.set(layer.layer, layer);
  const lowering = (mayChoose: boolean, numParts: number): AttentionLowering =>
    new TieredAttention({ numRows: maxTokens, numParts, attention, mayChoose, onLayer }).lower;
  const isChosen = choosing.size > 0;
  const steps = {
    decode: build('decode', lowering(isChosen, isInvariant ? 1 : numSplitParts)),
    batch: build('batch', lowering(false, 1)),
    ...(isChosen && maxSequences > 1
      ? { decodeBatch: build('decodeBatch', lowering(true, maxSequences <= maxSplitTokens ? numSplitParts : 1)) }
      : {}),
  };
  const made = new Map<string, StreamPrograms>();
  const streams = new Map<number, StreamPrograms>();
  const chosen = new Map<number, ChosenProgram>();
  const chunkBlocks = sizes.chunkRuns * sizes.runBlocks;
  for (const { layer, shape } of layers.values()) {
    const key = JSON.stringify(shape);
    const programs = made.get(key) ?? streamPrograms(shape, maxTokens, chunkBlocks, maxFewTokens);
    made.set(key, programs);
    streams.set(layer, programs);
  }
  const madeChosen = new Map<string, ChosenProgram>();
  for (const { layer, shape, policy } of layers.values()) {
    if (policy === undefined) continue;
    const key = JSON.stringify([shape, policy.pageSize]);
    const program = madeChosen.get(key) ?? chosenProgram(shape, policy.pageSize, maxTokens, maxSequences);
    madeChosen.set(key, program);
    chosen.set(layer, program);
  }
  const all = [...made.values()].flatMap(({ few, many }) => (few === many ? [few] : [few, many]));
  return {
    sizes,
    reads,
    numRows: maxTokens,
    steps,
    layers: [...layers.values()],
    streams,
    maxFewTokens,
    chosen,
    programs: [...Object.values(steps), ...all, ...[...madeChosen.values()].map(({ program }) => program)],
  };
}

function chosenProgram(shape: StreamShape, pageSize: number, numRows: number, maxSequences: number): ChosenProgram {
  const { numKvHeads, headDim, valueDim, dtype } = shape;
  const pageBytes = pageSize * (sizeOf(dtype.keys, headDim) + sizeOf(dtype.values, valueDim));
  const stagedPages = Math.max(maxSequences * numKvHeads, Math.floor(maxChosenBytes / pageBytes));
  const maxPages = clamp(Math.floor(stagedPages / numKvHeads), 1, maxChosenPages);
  const numParts = maxSequences <= maxSplitTokens ? numSplitParts : 1;
  const sizes = { maxTokens: maxSequences, numRows, chunkBlocks: maxPages, numParts, pageSize, stagedPages };
  return { program: buildChosenProgram(shape, sizes), stagedPages, maxPages };
}

function streamPrograms(
  shape: StreamShape,
  numRows: number,
  chunkBlocks: number,
  maxFewTokens: number,
): StreamPrograms {
  const build = (maxTokens: number, numParts: number): Program =>
    buildStreamProgram(shape, { maxTokens, numRows, chunkBlocks, numParts });
  const few = build(Math.min(maxFewTokens, numRows), numSplitParts);
  return { few, many: numRows <= maxFewTokens ? few : build(numRows, 1) };
}

/** Maximum number of new blocks per step: those of a chunk, and one for each further sequence. */
function countStepBlocks(maxTokens: number, maxSequences: number, blockSize: number): number {
  return Math.ceil(maxTokens / blockSize) + maxSequences;
}

function bytes(argument: string, value: number | undefined, fallback: number): number {
  if (value === undefined) return fallback;
  if (Number.isSafeInteger(value) && value >= 0) return value;
  throw new ArgumentError({ argument, expected: 'a number of bytes', actual: String(value) });
}

function clamp(value: number, low: number, high: number): number {
  return Math.max(low, Math.min(high, value));
}
