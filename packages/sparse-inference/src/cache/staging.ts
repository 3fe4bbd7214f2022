/** How many reads are under way at a time, how long they are, and what memory that takes. */

/** How a cache reads its sources. */
export interface NeuronReadOptions {
  /** Reads under way at a time. Default: 8, fewer for items of more than 1 MiB. */
  readonly maxReads?: number;
  /** Longest read; rounded up to one item. Default 256 KiB. Memory for reads: at most `maxReads` times this. */
  readonly readBytes?: number;
  /** Neighbors with at most so many bytes between them are read together. Default 32 KiB. */
  readonly maxGapBytes?: number;
}

/** More than a system's worker threads bring no more. */
const mostReads = 8;
/** Two, so that one is read while the other one is taken over. */
const fewestReads = 2;
/** Large items are read fewer at a time, so that their buffers stay within this. */
const usualStagingBytes = 8 * 1024 * 1024;
/** A read of this length takes several times what its call costs, on disks of up to some GB/s. */
export const defaultReadBytes: number = 256 * 1024;
/** A gap of this length takes about as long to read as another call. */
export const defaultMaxGapBytes: number = 32 * 1024;

export function defaultMaxReads(bufferBytes: number): number {
  return Math.max(fewestReads, Math.min(mostReads, Math.floor(usualStagingBytes / Math.max(1, bufferBytes))));
}

/**
 * Memory for reads that a cache makes at most, an input of `planNeuronTiers`.
 * @param largestBytes the longest range of a source that one item takes: one piece, or all that are side by side
 */
export function neuronStagingBytes(largestBytes: number, options: NeuronReadOptions = {}): number {
  const bufferBytes = Math.max(options.readBytes ?? defaultReadBytes, largestBytes);
  return (options.maxReads ?? defaultMaxReads(bufferBytes)) * bufferBytes;
}
