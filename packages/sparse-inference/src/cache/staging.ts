/** The number of concurrent reads, their size, and the memory that they need. */
import type { OptionNames } from '@winnow/tensor';

/** How a cache reads its sources. */
export interface NeuronReadOptions {
  /** Maximum number of concurrent reads. Default: 8, fewer for items of more than 1 MiB. */
  readonly maxReads?: number;
  /**
   * Maximum size of a read; rounded up to one item. Default 256 KiB. Memory for reads: at most `maxReads` times this.
   */
  readonly readBytes?: number;
  /** Neighbors with at most this many bytes between them are read together. Default 32 KiB. */
  readonly maxGapBytes?: number;
}

export const neuronReadNames: OptionNames<NeuronReadOptions> = { maxReads: true, readBytes: true, maxGapBytes: true };

/** More reads than I/O threads do not help. */
const maxReads = 8;
/** Two, so that one is read while the other is copied. */
const minReads = 2;
/** Large items have fewer concurrent reads, so that their buffers stay within this. */
const usualStagingBytes = 8 * 1024 * 1024;
/** On disks of up to a few GB/s, a read of this size takes several times as long as the overhead of its call. */
export const defaultReadBytes: number = 256 * 1024;
/** Reading a gap of this size takes about as long as another call. */
export const defaultMaxGapBytes: number = 32 * 1024;

export function defaultMaxReads(bufferBytes: number): number {
  return Math.max(minReads, Math.min(maxReads, Math.floor(usualStagingBytes / Math.max(1, bufferBytes))));
}

/**
 * Maximum memory for reads of a cache, an input of `planNeuronTiers`.
 * @param largestBytes the largest range of an item in a source: one piece, or several adjacent ones
 */
export function neuronStagingBytes(largestBytes: number, options: NeuronReadOptions = {}): number {
  const bufferBytes = Math.max(options.readBytes ?? defaultReadBytes, largestBytes);
  return (options.maxReads ?? defaultMaxReads(bufferBytes)) * bufferBytes;
}
