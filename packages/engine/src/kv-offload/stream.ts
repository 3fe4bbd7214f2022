/**
 * Brings pages to a step that runs: at each layer's boundary the chunks of its sequences, one after the other, while the
 * next ones are being read. The memory for it is the same whatever the context: a few chunks.
 */
import type { AppendedSlots, SequenceView } from '@winnow/kv-cache';
import { kvBufferNames } from '@winnow/models';
import { createScalarBlock, type Backend, type BufferHandle, type Executable, type Program } from '@winnow/ops';
import type { KvBuffer } from '../memory/kv-memory.js';
import { createTierChooser, type ChoosingQuery } from './page-attention.js';
import { isFew, type TierPlan } from './plan.js';
import { numStages, tierBuffers } from './program.js';
import { joinPageErrors, type TierStore } from './store.js';

/** The tokens of one sequence in a step. */
export interface StreamPart {
  readonly sequence: { readonly view: SequenceView };
  readonly appended: AppendedSlots;
}

/** A step whose sequences have pages outside the pool. */
export interface StreamedStep {
  /** For each token of the step the row of its query, -1 for those that need none, and the row of its state. */
  readonly queryRows: Int32Array;
  readonly stateRows: Int32Array;
  readonly onBoundary: (boundary: string) => Promise<void>;
  /** Waits for what is being read. Call it whatever became of the step. */
  end(): Promise<void>;
}

export interface TierStream {
  /**
   * @param mayChoose whether the step's program is one in which layers choose their pages
   * @param signal ends it between chunks, and within one
   */
  begin(parts: readonly StreamPart[], mayChoose: boolean, signal: AbortSignal | undefined): StreamedStep;
  statistics(): { readonly numChunks: number; readonly waitedMs: number; readonly numChosenPages: number };
}

/** Blocks of a sequence that are attended to together. */
interface Chunk {
  readonly runIds: readonly number[];
  /** Places in the chunk, block by block, and the positions of their slots. */
  readonly places: readonly number[];
  readonly positions: readonly Int32Array[];
  readonly lastPosition: number;
}

interface Job {
  readonly layer: LayerBuffers;
  readonly chunk: Chunk;
  /** Row of the first query, and the position of each. */
  readonly firstRow: number;
  readonly positions: Int32Array;
}

interface LayerBuffers {
  readonly boundary: string;
  readonly keys: KvBuffer;
  readonly values: KvBuffer;
  readonly window: number;
  readonly few: StreamExecutable;
  readonly many: StreamExecutable;
}

interface StreamExecutable {
  run(job: Job, stage: number, signal: AbortSignal | undefined): Promise<void>;
}

export interface TierStreamOptions {
  readonly backend: Backend;
  readonly plan: TierPlan;
  readonly blockSize: number;
  readonly blockBuffers: readonly KvBuffer[];
  /** Memory of the programs, by buffer name. */
  readonly buffers: ReadonlyMap<string, BufferHandle>;
  readonly executables: ReadonlyMap<Program, Executable>;
  readonly store: TierStore;
  readonly now: () => number;
}

export async function createTierStream(options: TierStreamOptions): Promise<TierStream> {
  const { backend, plan, blockSize, blockBuffers, buffers, executables, store, now } = options;
  const { numRows, runBlocks, chunkRuns } = plan;
  const chunkBlocks = runBlocks * chunkRuns;
  const handle = (name: string): BufferHandle => buffers.get(name) as BufferHandle;
  const blockBuffer = (name: string): KvBuffer => blockBuffers.find((buffer) => buffer.name === name) as KvBuffer;
  const prepared = new Map<Program, StreamExecutable>();
  const prepare = (program: Program): StreamExecutable => {
    const made = prepared.get(program) ?? streamExecutable(executables.get(program) as Executable, chunkBlocks);
    prepared.set(program, made);
    return made;
  };
  const layers = plan.layers.map(({ layer, boundary, shape }): LayerBuffers => {
    const names = kvBufferNames(layer);
    const programs = plan.streams.get(layer) as { few: Program; many: Program };
    return {
      boundary,
      keys: blockBuffer(names.keys),
      values: blockBuffer(names.values),
      window: shape.window,
      few: prepare(programs.few),
      many: prepare(programs.many),
    };
  });
  const chooser = createTierChooser({ backend, plan, blockSize, blockBuffers, buffers, executables, store, now });
  let numChunks = 0;
  let waitedMs = 0;

  /** Makes states of rows empty: `m = -Infinity, l = 0, o = 0`. */
  async function clearRows(begin: number, end: number): Promise<void> {
    const clear = async (name: string, value: number): Promise<void> => {
      const buffer = handle(name);
      const rowBytes = buffer.sizeBytes / (numRows + 1);
      const view = backend.view(buffer);
      const bytes = view?.subarray(begin * rowBytes, end * rowBytes) ?? new Uint8Array((end - begin) * rowBytes);
      new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4).fill(value);
      if (view === undefined) await backend.write(buffer, begin * rowBytes, bytes);
    };
    await clear(tierBuffers.maxima, -Infinity);
    await clear(tierBuffers.sums, 0);
    await clear(tierBuffers.outputs, 0);
  }
  if (plan.steps !== undefined) await clearRows(0, numRows + 1);

  /** Lets `fill` write into a range of a staging buffer. */
  async function stage(
    name: string,
    byteOffset: number,
    sizeBytes: number,
    fill: (target: Uint8Array) => void | Promise<void>,
  ): Promise<void> {
    const view = backend.view(handle(name));
    const target = view?.subarray(byteOffset, byteOffset + sizeBytes) ?? new Uint8Array(sizeBytes);
    await fill(target);
    if (view === undefined) await backend.write(handle(name), byteOffset, target);
  }

  async function load({ layer, chunk }: Job, stageIndex: number): Promise<void> {
    const { runIds, places, positions } = chunk;
    const firstBlock = stageIndex * chunkBlocks;
    const reads = runIds.flatMap((runId, index) =>
      (
        [
          [tierBuffers.keys, layer.keys],
          [tierBuffers.values, layer.values],
        ] as const
      ).map(([name, buffer]) => {
        const runBytes = runBlocks * buffer.rowBytes;
        const begin = firstBlock * buffer.rowBytes + index * runBytes;
        return stage(name, begin, runBytes, async (target) => {
          const warm = store.peekRun(runId, buffer);
          if (warm === undefined) return store.readRun(runId, buffer, target);
          await undefined; // copies begin when the chunk before is being computed elsewhere
          target.set(warm);
        });
      }),
    );
    const positionBytes = blockSize * 4;
    reads.push(
      stage(tierBuffers.slotPositions, firstBlock * positionBytes, chunkBlocks * positionBytes, (target) => {
        const words = new Int32Array(target.buffer, target.byteOffset, chunkBlocks * blockSize);
        for (const [index, place] of places.entries()) words.set(positions[index] as Int32Array, place * blockSize);
      }),
    );
    const results = await Promise.allSettled(reads);
    const errors = results.flatMap((result) => (result.status === 'rejected' ? [result.reason as unknown] : []));
    if (errors.length > 0) throw joinPageErrors(errors);
  }

  /** The pages of a sequence, cut into chunks of whole runs. */
  function chunksOf({ detachedPages }: SequenceView): Chunk[] {
    const byRun = new Map<number, { readonly index: number; readonly positions: Int32Array }[]>();
    for (const { pageId, positions } of detachedPages) {
      const { runId, index } = store.locate(pageId);
      const blocks = byRun.get(runId);
      if (blocks === undefined) byRun.set(runId, [{ index, positions }]);
      else blocks.push({ index, positions });
    }
    const runIds = [...byRun.keys()];
    const chunks: Chunk[] = [];
    for (let begin = 0; begin < runIds.length; begin += chunkRuns) {
      const own = runIds.slice(begin, begin + chunkRuns);
      const places: number[] = [];
      const positions: Int32Array[] = [];
      let lastPosition = -1;
      for (const [runIndex, runId] of own.entries()) {
        for (const block of byRun.get(runId) ?? []) {
          places.push(runIndex * runBlocks + block.index);
          positions.push(block.positions);
          for (const position of block.positions) if (position > lastPosition) lastPosition = position;
        }
      }
      chunks.push({ runIds: own, places, positions, lastPosition });
    }
    return chunks;
  }

  return {
    begin(parts, mayChoose, signal): StreamedStep {
      const numTokens = parts.reduce((sum, { appended }) => sum + appended.slots.length, 0);
      const queryRows = new Int32Array(numTokens).fill(-1);
      const stateRows = new Int32Array(numTokens).fill(numRows);
      const sequences: { readonly chunks: Chunk[]; readonly firstRow: number; readonly positions: Int32Array }[] = [];
      const queries: ChoosingQuery[] = [];
      let row = 0;
      let token = 0;
      for (const { sequence, appended } of parts) {
        const { positions } = appended;
        const count = positions.length;
        const hasPages = sequence.view.detachedPages.length > 0;
        if (hasPages) sequences.push({ chunks: chunksOf(sequence.view), firstRow: row, positions });
        if (hasPages || mayChoose) {
          for (let i = 0; i < count; i++, row++) {
            queries.push({ view: sequence.view, row, position: positions[i] as number });
            queryRows[token + i] = stateRows[token + i] = row;
          }
        }
        token += count;
      }
      const jobs: Job[] = [];
      for (const layer of layers) {
        if (mayChoose && chooser.has(layer.boundary)) continue;
        for (const { chunks, firstRow, positions } of sequences) {
          for (const chunk of chunks) {
            const reach = layer.window === 0 ? Infinity : layer.window;
            if ((positions[0] as number) - chunk.lastPosition >= reach) continue; // no query sees any of it
            jobs.push({ layer, chunk, firstRow, positions });
          }
        }
      }
      let next = 0;
      let begun = 0;
      const loading: Promise<void>[] = [];
      const loadAhead = (): void => {
        for (; begun < jobs.length && begun < next + numStages - 1; begun++) {
          const one = load(jobs[begun] as Job, begun % numStages);
          one.catch(() => undefined); // whoever waits for it is told
          loading.push(one);
        }
      };
      loadAhead();
      return {
        queryRows,
        stateRows,
        async onBoundary(boundary): Promise<void> {
          await clearRows(0, row);
          if (mayChoose && chooser.has(boundary)) {
            await chooser.attend(boundary, queries, signal);
            return;
          }
          for (let job = jobs[next]; job?.layer.boundary === boundary; job = jobs[next]) {
            const startMs = now();
            await loading.shift();
            waitedMs += now() - startMs;
            signal?.throwIfAborted();
            const stageIndex = next % numStages;
            next++;
            loadAhead();
            const executable = isFew(job.positions.length) ? job.layer.few : job.layer.many;
            await executable.run(job, stageIndex, signal);
            numChunks++;
          }
        },
        async end(): Promise<void> {
          await Promise.allSettled(loading);
        },
      };
    },
    statistics() {
      const chosen = chooser.statistics();
      return {
        numChunks: numChunks + chosen.numChunks,
        waitedMs: waitedMs + chosen.waitedMs,
        numChosenPages: chosen.numChosenPages,
      };
    },
  };
}

function streamExecutable(executable: Executable, chunkBlocks: number): StreamExecutable {
  const { program } = executable;
  const scalars = createScalarBlock(program.scalars, program.symbols);
  const rows = scalars.slot('rows');
  const queryPositions = scalars.slot('positions');
  const table = scalars.slot('blockTable');
  const length = scalars.slot('contextLengths');
  return {
    async run({ chunk, firstRow, positions }, stage, signal): Promise<void> {
      for (let i = 0; i < positions.length; i++) {
        rows[i] = firstRow + i;
        queryPositions[i] = positions[i] as number;
      }
      const { places } = chunk;
      for (let i = 0; i < places.length; i++) table[i] = stage * chunkBlocks + (places[i] as number);
      length[0] = places.length * ((chunk.positions[0]?.length ?? 0) as number);
      scalars.bind('T', positions.length);
      await executable.run(scalars.words, signal === undefined ? {} : { signal });
    },
  };
}
