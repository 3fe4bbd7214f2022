/** The prepared program that merges the attention of some queries over one chunk into their partial softmax states. */
import { createScalarBlock, type Executable, type ScalarBlock } from '@winnow/ops';
import type { KvBuffer } from '../memory/kv-memory.js';
import type { Chunk } from './chunks.js';
import type { TierBuffers } from './program.js';

/** A layer that attends to all offloaded pages. */
export interface LayerStream {
  readonly boundary: string;
  readonly keys: KvBuffer;
  readonly values: KvBuffer;
  readonly names: TierBuffers;
  readonly window: number;
  /** The programs for small and for large batches of queries. */
  readonly few: ChunkProgram;
  readonly many: ChunkProgram;
}

/** A chunk to attend to. */
export interface ChunkJob {
  readonly layer: LayerStream;
  readonly chunk: Chunk;
  /** Row of the first query, and the position of each. */
  readonly firstRow: number;
  readonly positions: Int32Array;
}

export class ChunkProgram {
  readonly #executable: Executable;
  readonly #chunkBlocks: number;
  readonly #scalars: ScalarBlock;

  constructor(executable: Executable, chunkBlocks: number) {
    const { scalars, symbols } = executable.program;
    this.#executable = executable;
    this.#chunkBlocks = chunkBlocks;
    this.#scalars = createScalarBlock(scalars, symbols);
  }

  /** @param stage where the chunk was read to */
  async run({ chunk, firstRow, positions }: ChunkJob, stage: number, signal: AbortSignal | undefined): Promise<void> {
    const [rows, queryPositions] = [this.#scalars.slot('rows'), this.#scalars.slot('positions')];
    for (let i = 0; i < positions.length; i++) {
      rows[i] = firstRow + i;
      queryPositions[i] = positions[i] as number;
    }
    const { places } = chunk;
    const table = this.#scalars.slot('blockTable');
    for (let i = 0; i < places.length; i++) table[i] = stage * this.#chunkBlocks + (places[i] as number);
    this.#scalars.slot('contextLengths')[0] = places.length * (chunk.positions[0]?.length ?? 0);
    this.#scalars.bind('T', positions.length);
    await this.#executable.run(this.#scalars.words, signal === undefined ? {} : { signal });
  }
}
