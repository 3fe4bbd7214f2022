/** Sizes the tiers of the cache, and the programs that attend across them. */
import type { AttentionWriter, Program } from '@winnow/ops';
import { ArgumentError, CapacityError } from '@winnow/tensor';
import {
  buildStreamProgram,
  createTierWriter,
  type StreamShape,
  type StreamSizes,
  type TieredLayer,
} from './kv-tiers-program.js';
import type { KvTierOptions } from './types.js';

/** Most bytes of keys, or of values, of one layer that are stored and read as one page. */
const maxPageBytes = 512 * 1024;
const maxRunBlocks = 32;
/** Most bytes of keys and values of one layer that are attended to at once. */
const maxChunkBytes = 4 * 1024 * 1024;
/** Most runs of one chunk, which are read at the same time. */
const maxChunkRuns = 8;
/** Steps of up to so many tokens split their attention among threads by ranges of the context. */
const fewTokens = 8;
const numFewParts = 4;

/** How the blocks of a cache are divided. */
export interface TierSizes {
  readonly hotBytes: number;
  readonly warmBytes: number;
  readonly cold: KvTierOptions['coldPath'];
  readonly numBlocks: number;
  /** Blocks that leave the pool together: what is stored and read at a time. */
  readonly runBlocks: number;
  /** Runs that are attended to at a time. */
  readonly chunkRuns: number;
}

/** Programs for layers of one shape: for few tokens and for many. */
export interface StreamPrograms {
  readonly few: Program;
  readonly many: Program;
}

export interface TierPlan extends TierSizes {
  /** Rows of the buffers of queries and states. */
  readonly numRows: number;
  /** Like the programs without tiers, with a boundary in each layer. */
  readonly decode: Program;
  readonly batch: Program;
  readonly layers: readonly TieredLayer[];
  /** By layer. */
  readonly streams: ReadonlyMap<number, StreamPrograms>;
  /** All of them. */
  readonly programs: readonly Program[];
}

/** Tokens up to which the program for few is used. */
export function isFew(numTokens: number): boolean {
  return numTokens <= fewTokens;
}

interface SizeFacts {
  /** Bytes of a block over all layers. */
  readonly blockBytes: number;
  /** Bytes of a block of keys and values of one layer. */
  readonly keyRowBytes: number;
  readonly valueRowBytes: number;
  /** Blocks that would hold what all sessions may hold. */
  readonly numAllBlocks: number;
  /** Blocks of a cache without tiers. */
  readonly numCacheBlocks: number;
  /** Blocks that a step may need at once. */
  readonly numStepBlocks: number;
}

/**
 * @returns `undefined` when everything fits the hot tier
 * @throws {ArgumentError} for sizes that are none
 * @throws {CapacityError} when the hot tier is too small for a step, or for everything without further tiers
 */
export function sizeTiers(options: KvTierOptions | undefined, facts: SizeFacts): TierSizes | undefined {
  if (options === undefined) return undefined;
  const { blockBytes, keyRowBytes, valueRowBytes, numAllBlocks, numCacheBlocks, numStepBlocks } = facts;
  const hotBytes = bytes('kv.hotBytes', options.hotBytes, numCacheBlocks * blockBytes);
  const warmBytes = bytes('kv.warmBytes', options.warmBytes, 0);
  const numBlocks = Math.floor(hotBytes / blockBytes);
  if (numBlocks >= numAllBlocks) return undefined;
  const isTiered = warmBytes > 0 || options.coldPath !== undefined;
  // the first block and the newest ones never leave the pool
  const numNeeded = isTiered ? numStepBlocks + 3 : numCacheBlocks;
  if (numBlocks < numNeeded) {
    const hint = isTiered ? 'a smaller batchSize needs less' : 'kv.warmBytes or kv.coldPath takes what does not fit';
    throw new CapacityError({
      resource: 'kv.hotBytes',
      needed: numNeeded * blockBytes,
      available: hotBytes,
      unit: 'bytes',
      hint,
    });
  }
  if (!isTiered) return undefined;
  const largest = Math.max(keyRowBytes, valueRowBytes);
  const runBlocks = clamp(Math.floor(maxPageBytes / largest), 1, Math.min(maxRunBlocks, numBlocks >> 2));
  const runBytes = runBlocks * (keyRowBytes + valueRowBytes);
  const chunkRuns = clamp(Math.floor(maxChunkBytes / runBytes), 1, maxChunkRuns);
  return { hotBytes, warmBytes, cold: options.coldPath, numBlocks, runBlocks, chunkRuns };
}

/** @param build makes the program of a step for at most that many tokens and sequences */
export function planTiers(
  sizes: TierSizes,
  maxTokens: number,
  build: (phase: 'decode' | 'batch', attention: AttentionWriter) => Program,
): TierPlan {
  const layers = new Map<number, TieredLayer>();
  const onLayer = (layer: TieredLayer): void => void layers.set(layer.layer, layer);
  const decode = build('decode', createTierWriter(maxTokens, numFewParts, onLayer));
  const batch = build('batch', createTierWriter(maxTokens, 1, onLayer));
  const made = new Map<string, StreamPrograms>();
  const streams = new Map<number, StreamPrograms>();
  const streamSizes: StreamSizes = {
    maxTokens,
    numRows: maxTokens,
    chunkBlocks: sizes.chunkRuns * sizes.runBlocks,
    numParts: 1,
  };
  for (const { layer, shape } of layers.values()) {
    const key = JSON.stringify(shape);
    const programs = made.get(key) ?? streamPrograms(shape, streamSizes);
    made.set(key, programs);
    streams.set(layer, programs);
  }
  const all = [...made.values()].flatMap(({ few, many }) => (few === many ? [few] : [few, many]));
  return {
    ...sizes,
    numRows: maxTokens,
    decode,
    batch,
    layers: [...layers.values()],
    streams,
    programs: [decode, batch, ...all],
  };
}

function streamPrograms(shape: StreamShape, sizes: StreamSizes): StreamPrograms {
  const few = buildStreamProgram(shape, {
    ...sizes,
    maxTokens: Math.min(fewTokens, sizes.maxTokens),
    numParts: numFewParts,
  });
  return { few, many: isFew(sizes.maxTokens) ? few : buildStreamProgram(shape, sizes) };
}

/** Blocks that a step of a cache may need: those of a chunk, and one that each further sequence begins. */
export function countStepBlocks(maxTokens: number, maxSequences: number, blockSize: number): number {
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
