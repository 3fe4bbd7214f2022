/** The offloaded pages of a sequence, split into chunks that are read and attended to one at a time. */
import type { SequenceView } from '@winnow/kv-cache';
import type { TierSizes } from './plan.js';
import type { OffloadStore } from './store.js';

/** Blocks of a sequence that are attended to together. */
export interface Chunk {
  readonly runIds: readonly number[];
  /** Indices in the chunk by block, and the positions of their slots. */
  readonly places: readonly number[];
  readonly positions: readonly Int32Array[];
  readonly lastPosition: number;
}

interface RunBlock {
  readonly index: number;
  readonly positions: Int32Array;
}

/** Chunks of whole runs. */
export function chunksOf(
  { detachedPages }: SequenceView,
  store: OffloadStore,
  { chunkRuns, runBlocks }: Pick<TierSizes, 'chunkRuns' | 'runBlocks'>,
): Chunk[] {
  const byRun = new Map<number, RunBlock[]>();
  for (const { pageId, positions } of detachedPages) {
    const { runId, index } = store.locate(pageId);
    const blocks = byRun.get(runId);
    if (blocks === undefined) byRun.set(runId, [{ index, positions }]);
    else blocks.push({ index, positions });
  }
  const runs = [...byRun];
  const chunks: Chunk[] = [];
  for (let begin = 0; begin < runs.length; begin += chunkRuns) {
    chunks.push(chunkOf(runs.slice(begin, begin + chunkRuns), runBlocks));
  }
  return chunks;
}

function chunkOf(runs: readonly (readonly [runId: number, blocks: readonly RunBlock[]])[], runBlocks: number): Chunk {
  const places: number[] = [];
  const positions: Int32Array[] = [];
  let lastPosition = -1;
  for (const [runIndex, [, blocks]] of runs.entries()) {
    for (const block of blocks) {
      places.push(runIndex * runBlocks + block.index);
      positions.push(block.positions);
      for (const position of block.positions) if (position > lastPosition) lastPosition = position;
    }
  }
  return { runIds: runs.map(([runId]) => runId), places, positions, lastPosition };
}
