/** The weights and caches of one part of a program, in the memory of the part. */
import type { Program } from '@winnow/ops';
import { addPlace, makeCurrent, placeIn, setWritten, type BufferPlace, type WasmBuffer } from './buffer-places.js';
import type { JobQueue } from './job-queue.js';
import type { MemoryShard } from './memory-shard.js';
import { packingSteps, writePackingJob, type PackedTensor } from './packing.js';
import { workersOnly } from './caller-share.js';
import { externalsOf, type ProgramPart, type Stage } from './split-program.js';

interface Bound {
  readonly buffer: WasmBuffer;
  readonly place: BufferPlace;
}

/** What a stage has to do with caches that lie in several memories. */
export interface StageCaches {
  /** Before its jobs: brings them here. */
  readonly before: () => void;
  /** After its jobs: lets other memories know what it wrote. */
  readonly after: () => void;
}

export interface PartBuffers {
  readonly addressOf: (buffer: number) => number;
  /** Whether all weights are here, interleaved as this program left them. */
  isReady(): boolean;
  /** Sees to that; returns the weights that cannot be interleaved. */
  makeReady(tensors: readonly PackedTensor[], checkAlive: () => void): Promise<readonly PackedTensor[]>;
  cachesOf(stage: Stage): StageCaches;
}

export interface PartBufferOptions {
  readonly bound: ReadonlyMap<number, WasmBuffer>;
  readonly queue: JobQueue;
  readonly numThreads: number;
  /** Whether any buffer of the backend lies in several memories. */
  readonly hasCopies: () => boolean;
}

/** @throws {CapacityError} when there is no room for a copy */
export function bindPart(
  { memory, program }: ProgramPart<MemoryShard>,
  { bound, queue, numThreads, hasCopies }: PartBufferOptions,
): PartBuffers {
  const places = new Map<number, Bound>();
  for (const index of externalsOfAll(program)) {
    const buffer = bound.get(index) as WasmBuffer;
    places.set(index, { buffer, place: placeIn(buffer, memory) ?? addPlace(buffer, memory) });
  }
  const weights = [...places].filter(([index]) => program.buffers[index].usage === 'weights').map(([, entry]) => entry);
  const packable = new Map([...places].map(([index, { place }]) => [index, place]));
  let known: (readonly PackedTensor[])[] = []; // what was packed where when this program last looked

  async function runPacking(
    steps: ReturnType<typeof packingSteps>,
    checkAlive: () => void,
  ): Promise<readonly PackedTensor[]> {
    if (steps.length === 0) return [];
    const { heap, runner } = memory;
    const { address, region, finish } = writePackingJob(steps, heap, numThreads);
    try {
      await queue.run({ address, begin: 0, end: steps.length, share: workersOnly, runner }, undefined, checkAlive);
      return finish().map(({ tensor }) => tensor);
    } finally {
      queue.whenIdle(() => heap.free(region));
    }
  }

  return {
    addressOf: (buffer) => (places.get(buffer) as Bound).place.address,
    isReady: () =>
      known.length === weights.length &&
      weights.every(({ place }, index) => place.isCurrent && place.packed === known[index]),
    async makeReady(tensors, checkAlive) {
      if (weights.some(({ place }) => !place.isCurrent)) {
        const copy = (): void => {
          for (const { buffer, place } of weights) makeCurrent(buffer, place);
        };
        await queue.takeTurn(copy, checkAlive);
      }
      const refused = await runPacking(packingSteps(tensors, packable), checkAlive);
      known = weights.map(({ place }) => place.packed);
      return refused;
    },
    cachesOf({ begin, end }) {
      const touched = new Map<number, Bound>();
      const written = new Map<number, Bound>();
      for (const record of program.records.slice(begin, end)) {
        for (const index of externalsOf(record)) {
          if (program.buffers[index].usage === 'kv') touched.set(index, places.get(index) as Bound);
        }
        for (const { buffer } of Object.values(record.outputs)) {
          const entry = touched.get(buffer);
          if (entry !== undefined) written.set(buffer, entry);
        }
      }
      return {
        before() {
          if (!hasCopies()) return;
          for (const { buffer, place } of touched.values()) makeCurrent(buffer, place);
          for (const { buffer, place } of written.values()) setWritten(buffer, place);
        },
        after() {
          if (!hasCopies()) return;
          for (const { buffer, place } of written.values()) setWritten(buffer, place);
        },
      };
    },
  };
}

function externalsOfAll({ records }: Program): Set<number> {
  return new Set(records.flatMap((record) => [...externalsOf(record)]));
}
