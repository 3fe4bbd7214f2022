/**
 * Streams offloaded pages to a running step: at each layer's boundary it attends to the chunks of the sequences one
 * after the other, while the next ones are being read. Its memory, a few chunks, does not depend on the context.
 */
import type { AppendedSlots, SequenceView } from '@winnow/kv-cache';
import { kvBufferNames } from '@winnow/models';
import type { Executable, Program } from '@winnow/ops';
import type { KvBuffer } from '../memory/kv-memory.js';
import { OffloadBuffers, settleAll } from './buffers.js';
import { ChunkProgram, type ChunkJob, type LayerStream } from './chunk-program.js';
import { chunksOf, type Chunk } from './chunks.js';
import { PageAttention, type PageQuery } from './pages/attention.js';
import type { OffloadParts } from './parts.js';
import type { StreamPrograms, TierPlan } from './plan.js';
import { numStages, tierBuffersOf, type TierBuffers } from './program.js';
import type { OffloadStore } from './store.js';

/** The tokens of one sequence in a step. */
export interface StreamPart {
  readonly sequence: { readonly view: SequenceView; readonly appended: AppendedSlots };
  readonly count: number;
}

export interface StreamStatistics {
  readonly numChunks: number;
  readonly waitedMs: number;
  readonly numChosenPages: number;
}

export class TierStream {
  readonly buffers: OffloadBuffers;
  /** Attention of layers that select their pages. */
  readonly pages: PageAttention;
  readonly layers: readonly LayerStream[];
  readonly now: () => number;
  readonly #plan: TierPlan;
  readonly #blockSize: number;
  readonly #store: OffloadStore;
  /** By boundary. */
  readonly #names: ReadonlyMap<string, TierBuffers>;
  #numChunks = 0;
  #waitedMs = 0;

  private constructor(parts: OffloadParts) {
    const { host, pool, plan, store } = parts;
    this.buffers = new OffloadBuffers(host.backend, host.buffers);
    this.pages = new PageAttention(parts, this.buffers);
    this.now = host.now;
    this.#plan = plan;
    this.#blockSize = pool.manager.blockSize;
    this.#store = store;
    const prepared = new Map<Program, ChunkProgram>();
    const chunkBlocks = plan.sizes.runBlocks * plan.sizes.chunkRuns;
    const prepare = (program: Program): ChunkProgram => {
      const made = prepared.get(program) ?? new ChunkProgram(host.executables.get(program) as Executable, chunkBlocks);
      prepared.set(program, made);
      return made;
    };
    const blockBuffer = (name: string): KvBuffer =>
      pool.memory.blockBuffers.find((buffer) => buffer.name === name) as KvBuffer;
    this.#names = new Map(plan.layers.map(({ boundary, shape }) => [boundary, tierBuffersOf(shape)]));
    this.layers = plan.layers.map(({ layer, kvLayer, boundary, shape }) => {
      const { keys, values } = kvBufferNames(kvLayer);
      const { few, many } = plan.streams.get(layer) as StreamPrograms;
      return {
        boundary,
        keys: blockBuffer(keys),
        values: blockBuffer(values),
        names: this.#names.get(boundary) as TierBuffers,
        window: shape.window,
        few: prepare(few),
        many: prepare(many),
      };
    });
  }

  static async create(parts: OffloadParts): Promise<TierStream> {
    const stream = new TierStream(parts);
    const { steps, numRows } = parts.plan;
    if (steps === undefined) return stream;
    // layers with heads of one size share buffers
    const shared = new Map([...stream.#names.values()].map((names) => [names.maxima, names]));
    for (const names of shared.values()) await stream.#clearStates(names, numRows + 1);
    return stream;
  }

  /** Number of rows in the buffers of queries and states; the row after them is the empty state. */
  get numRows(): number {
    return this.#plan.numRows;
  }

  /**
   * @param selectsPages whether layers select pages in the step's program
   * @param signal aborts it, between chunks or within one
   */
  begin(parts: readonly StreamPart[], selectsPages: boolean, signal: AbortSignal | undefined): StreamedStep {
    return new StreamedStep(this, parts, selectsPages, signal);
  }

  statistics(): StreamStatistics {
    const { numChunks, waitedMs, numChosenPages } = this.pages.statistics();
    return { numChunks: this.#numChunks + numChunks, waitedMs: this.#waitedMs + waitedMs, numChosenPages };
  }

  /** Empties the states of the first rows of a layer. */
  clearStates(boundary: string, numRows: number): Promise<void> {
    return this.#clearStates(this.#names.get(boundary) as TierBuffers, numRows);
  }

  /** `m = -Infinity, l = 0, o = 0`. */
  async #clearStates({ maxima, sums, outputs }: TierBuffers, numRows: number): Promise<void> {
    const clear = async (name: string, value: number): Promise<void> => {
      const rowBytes = this.buffers.sizeBytes(name) / (this.numRows + 1);
      await this.buffers.fill(name, 0, numRows * rowBytes, ({ buffer, byteOffset, byteLength }) => {
        new Float32Array(buffer, byteOffset, byteLength / 4).fill(value);
      });
    };
    await clear(maxima, -Infinity);
    await clear(sums, 0);
    await clear(outputs, 0);
  }

  chunksOf(view: SequenceView): Chunk[] {
    return chunksOf(view, this.#store, this.#plan.sizes);
  }

  /** Reads a chunk into one of the stages. */
  async load({ layer, chunk }: ChunkJob, stage: number): Promise<void> {
    const { runBlocks, chunkRuns } = this.#plan.sizes;
    const chunkBlocks = runBlocks * chunkRuns;
    const firstBlock = stage * chunkBlocks;
    const reads = chunk.runIds.flatMap((runId, index) => {
      const at = firstBlock + index * runBlocks;
      return [
        this.#loadRun(layer.names.keys, layer.keys, runId, at),
        this.#loadRun(layer.names.values, layer.values, runId, at),
      ];
    });
    const positionBytes = this.#blockSize * 4;
    const [begin, sizeBytes] = [firstBlock * positionBytes, chunkBlocks * positionBytes];
    reads.push(
      this.buffers.fill(layer.names.slotPositions, begin, sizeBytes, (target) => {
        const words = new Int32Array(target.buffer, target.byteOffset, chunkBlocks * this.#blockSize);
        for (const [index, place] of chunk.places.entries()) {
          words.set(chunk.positions[index] as Int32Array, place * this.#blockSize);
        }
      }),
    );
    await settleAll(reads);
  }

  /** Merges the attention over a loaded chunk into the states of its queries. */
  async runChunk(job: ChunkJob, stage: number, signal: AbortSignal | undefined): Promise<void> {
    const { few, many } = job.layer;
    await (job.positions.length <= this.#plan.maxFewTokens ? few : many).run(job, stage, signal);
    this.#numChunks++;
  }

  /** Waits for a chunk that is being read. */
  async wait(loading: Promise<void> | undefined): Promise<void> {
    const startMs = this.now();
    await loading;
    this.#waitedMs += this.now() - startMs;
  }

  #loadRun(name: string, buffer: KvBuffer, runId: number, firstBlock: number): Promise<void> {
    const runBytes = this.#plan.sizes.runBlocks * buffer.rowBytes;
    return this.buffers.fill(name, firstBlock * buffer.rowBytes, runBytes, async (target) => {
      const warm = this.#store.peekRun(runId, buffer);
      if (warm === undefined) return this.#store.readRun(runId, buffer, target);
      await undefined; // start copying once the previous chunk is being computed
      target.set(warm);
    });
  }
}

/** A step whose sequences have offloaded pages. */
export class StreamedStep {
  /** For each token of the step: the row of its query (-1 if it needs none) and the row of its state. */
  readonly queryRows: Int32Array;
  readonly stateRows: Int32Array;
  readonly #stream: TierStream;
  readonly #selectsPages: boolean;
  readonly #signal: AbortSignal | undefined;
  readonly #queries: PageQuery[] = [];
  readonly #jobs: readonly ChunkJob[];
  /** Chunks that are being read, the next one first. */
  readonly #loading: Promise<void>[] = [];
  #numLoading = 0;
  #next = 0;

  constructor(
    stream: TierStream,
    parts: readonly StreamPart[],
    selectsPages: boolean,
    signal: AbortSignal | undefined,
  ) {
    const numTokens = parts.reduce((sum, { count }) => sum + count, 0);
    this.#stream = stream;
    this.#selectsPages = selectsPages;
    this.#signal = signal;
    this.queryRows = new Int32Array(numTokens).fill(-1);
    this.stateRows = new Int32Array(numTokens).fill(stream.numRows);
    this.#jobs = this.#jobsOf(this.#addQueries(parts));
    this.#loadAhead();
  }

  async onBoundary(boundary: string): Promise<void> {
    await this.#stream.clearStates(boundary, this.#queries.length);
    if (this.#selectsPages && this.#stream.pages.has(boundary)) {
      await this.#stream.pages.attend(boundary, this.#queries, this.#signal);
      return;
    }
    for (let job = this.#jobs[this.#next]; job?.layer.boundary === boundary; job = this.#jobs[this.#next]) {
      await this.#stream.wait(this.#loading.shift());
      this.#signal?.throwIfAborted();
      const stage = this.#next % numStages;
      this.#next++;
      this.#loadAhead();
      await this.#stream.runChunk(job, stage, this.#signal);
    }
  }

  /** Waits for pending reads. Call it even if the step failed. */
  async end(): Promise<void> {
    await Promise.allSettled(this.#loading);
  }

  /** Assigns rows to tokens that attend to offloaded pages. Returns their sequences and chunks. */
  #addQueries(parts: readonly StreamPart[]): SequenceChunks[] {
    const sequences: SequenceChunks[] = [];
    let token = 0;
    for (const { sequence } of parts) {
      const { view, appended } = sequence;
      const { positions } = appended;
      const hasPages = view.detachedPages.length > 0;
      const firstRow = this.#queries.length;
      if (hasPages) sequences.push({ chunks: this.#stream.chunksOf(view), firstRow, positions });
      if (hasPages || this.#selectsPages) {
        for (let i = 0; i < positions.length; i++) {
          const row = this.#queries.length;
          this.#queries.push({ view, row, position: positions[i] as number });
          this.queryRows[token + i] = this.stateRows[token + i] = row;
        }
      }
      token += positions.length;
    }
    return sequences;
  }

  #jobsOf(sequences: readonly SequenceChunks[]): ChunkJob[] {
    const jobs: ChunkJob[] = [];
    for (const layer of this.#stream.layers) {
      if (this.#selectsPages && this.#stream.pages.has(layer.boundary)) continue;
      const reach = layer.window === 0 ? Infinity : layer.window;
      for (const { chunks, firstRow, positions } of sequences) {
        for (const chunk of chunks) {
          if ((positions[0] as number) - chunk.lastPosition >= reach) continue; // no query attends to it
          jobs.push({ layer, chunk, firstRow, positions });
        }
      }
    }
    return jobs;
  }

  #loadAhead(): void {
    const end = Math.min(this.#jobs.length, this.#next + numStages - 1);
    for (; this.#numLoading < end; this.#numLoading++) {
      const loading = this.#stream.load(this.#jobs[this.#numLoading] as ChunkJob, this.#numLoading % numStages);
      loading.catch(() => undefined); // the boundary that waits for it reports it
      this.#loading.push(loading);
    }
  }
}

/** Offloaded pages of a sequence, and its queries. */
interface SequenceChunks {
  readonly chunks: readonly Chunk[];
  readonly firstRow: number;
  readonly positions: Int32Array;
}
