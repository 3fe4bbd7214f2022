/** Reads many items of a layer once, when the cache is created, and passes each one on as it arrives. */
import { NeuronLoadError } from './load-error.js';
import { planReads, type ItemLayout, type PieceGroup, type PieceLayout, type ReadLimits } from './item-layout.js';
import type { ReadJob, ReadQueue } from './read-queue.js';

export interface BulkReadOptions {
  readonly layer: number;
  readonly layout: ItemLayout;
  readonly queue: ReadQueue;
  readonly reads: ReadLimits;
  readonly itemName: string;
  readonly signal: AbortSignal | undefined;
  /** Accepts one piece of an item, or returns the reason why it cannot. `bytes` is valid during the call. */
  readonly accept: (item: number, piece: PieceLayout, bytes: Uint8Array) => string | undefined;
}

/**
 * @param items ascending
 * @throws {NeuronLoadError} with the first failure
 */
export async function bulkRead(items: Int32Array, options: BulkReadOptions): Promise<void> {
  const { layout, queue, signal } = options;
  const jobs: ReadJob[] = [];
  let failure: unknown;
  let isFailed = false;
  const stop = (error: unknown): void => {
    if (!isFailed) failure = error;
    isFailed = true;
    for (const job of jobs) queue.cancel(job);
  };
  const onAbort = (): void => stop(signal?.reason);
  signal?.throwIfAborted();
  const ends: Promise<void>[] = [];
  for (const group of layout.groups) {
    planReads(group, items, options.reads, (from, to) => {
      ends.push(
        new Promise<void>((resolve) => {
          const part = items.subarray(from, to);
          jobs.push(jobOf(part, group, options, () => isFailed, stop, resolve));
        }),
      );
    });
  }
  signal?.addEventListener('abort', onAbort, { once: true });
  for (const job of jobs) queue.submit(job);
  await Promise.all(ends);
  signal?.removeEventListener('abort', onAbort);
  if (isFailed) throw failure;
}

function jobOf(
  items: Int32Array,
  group: PieceGroup,
  { layer, itemName, accept }: BulkReadOptions,
  isFailed: () => boolean,
  onError: (error: unknown) => void,
  onEnd: () => void,
): ReadJob {
  const { source, strideBytes, spanBytes, pieces, offsets } = group;
  const [first] = items;
  const byteOffset = group.byteOffset + first * strideBytes;
  const fail = (at: number, piece: string, failed: Int32Array, cause: unknown): void => {
    const message = cause instanceof Error ? cause.message : String(cause);
    const fields = { source: source.name, byteOffset: at, layer, piece, itemName, items: [...failed], message };
    onError(new NeuronLoadError(fields, { cause }));
  };
  return {
    source,
    byteOffset,
    sizeBytes: ((items.at(-1) as number) - first) * strideBytes + spanBytes,
    isWanted: true,
    isAlive: () => !isFailed(),
    onBytes(bytes) {
      for (let index = 0; index < items.length && !isFailed(); index++) {
        for (const [at, piece] of pieces.entries()) {
          const begin = (items[index] - first) * strideBytes + offsets[at];
          const problem = accept(items[index], piece, bytes.subarray(begin, begin + piece.itemBytes));
          if (problem !== undefined) fail(byteOffset + begin, piece.name, items.subarray(index, index + 1), problem);
        }
      }
    },
    onError: (cause) => fail(byteOffset, pieces.map(({ name }) => name).join(', '), items, cause),
    onEnd,
  };
}
