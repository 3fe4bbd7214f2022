/** The weights and caches of one part of a program, in the memory of the part. */
import type { Program } from '@winnow/ops';
import {
  addPlace,
  makeCurrent,
  placeIn,
  setWritten,
  type BufferPlace,
  type WasmBuffer,
} from '../memory/buffer-places.js';
import type { MemoryShard } from '../memory/memory-shard.js';
import { repackSteps, writeRepackJob, type RepackedTensor } from '../memory/repacking.js';
import { workersOnly } from '../runner/caller-share.js';
import type { JobQueue } from '../runner/job-queue.js';
import { externalsOf, type ProgramPart, type Stage } from './split-program.js';

interface Bound {
  readonly buffer: WasmBuffer;
  readonly place: BufferPlace;
}

/** Synchronization of caches in several memories for a stage. */
export interface StageCaches {
  /** Before its jobs: copies them here. */
  readonly before: () => void;
  /** After its jobs: marks what it wrote as current. */
  readonly after: () => void;
}

export interface PartBufferOptions {
  readonly bound: ReadonlyMap<number, WasmBuffer>;
  readonly queue: JobQueue;
  /** Whether any buffer of the backend is in several memories. */
  readonly hasCopies: () => boolean;
}

export class PartBuffers {
  readonly #memory: MemoryShard;
  readonly #program: Program;
  readonly #options: PartBufferOptions;
  readonly #places = new Map<number, Bound>();
  readonly #weights: readonly Bound[];
  readonly #repackable: ReadonlyMap<number, BufferPlace>;
  #known: (readonly RepackedTensor[])[] = []; // what was repacked in each buffer at the last check

  /** @throws {CapacityError} when a copy does not fit */
  constructor({ memory, program }: ProgramPart<MemoryShard>, options: PartBufferOptions) {
    this.#memory = memory;
    this.#program = program;
    this.#options = options;
    for (const index of externalsOfAll(program)) {
      const buffer = options.bound.get(index) as WasmBuffer;
      this.#places.set(index, { buffer, place: placeIn(buffer, memory) ?? addPlace(buffer, memory) });
    }
    const places = [...this.#places];
    this.#weights = places.filter(([index]) => program.buffers[index].usage === 'weights').map(([, entry]) => entry);
    this.#repackable = new Map(places.map(([index, { place }]) => [index, place]));
  }

  addressOf(buffer: number): number {
    return (this.#places.get(buffer) as Bound).place.address;
  }

  /** Whether all weights are here, interleaved as this program needs them. */
  isReady(): boolean {
    return (
      this.#known.length === this.#weights.length &&
      this.#weights.every(({ place }, index) => place.isCurrent && place.repacked === this.#known[index])
    );
  }

  /** Copies and interleaves weights; returns those that cannot be interleaved. */
  async makeReady(tensors: readonly RepackedTensor[], checkAlive: () => void): Promise<readonly RepackedTensor[]> {
    if (this.#weights.some(({ place }) => !place.isCurrent)) {
      const copy = (): void => {
        for (const { buffer, place } of this.#weights) makeCurrent(buffer, place);
      };
      await this.#options.queue.takeTurn(copy, checkAlive);
    }
    const refused = await this.#repack(repackSteps(tensors, this.#repackable), checkAlive);
    this.#known = this.#weights.map(({ place }) => place.repacked);
    return refused;
  }

  cachesOf(stage: Stage): StageCaches {
    const { touched, written } = this.#cachesOfRecords(stage);
    const { hasCopies } = this.#options;
    return {
      before() {
        if (!hasCopies()) return;
        for (const { buffer, place } of touched) makeCurrent(buffer, place);
        for (const { buffer, place } of written) setWritten(buffer, place);
      },
      after() {
        if (!hasCopies()) return;
        for (const { buffer, place } of written) setWritten(buffer, place);
      },
    };
  }

  /** The caches that the records of a stage read or write, and those that they write. */
  #cachesOfRecords({ begin, end }: Stage): { readonly touched: readonly Bound[]; readonly written: readonly Bound[] } {
    const touched = new Map<number, Bound>();
    const written = new Map<number, Bound>();
    for (const record of this.#program.records.slice(begin, end)) {
      for (const index of externalsOf(record)) {
        if (this.#program.buffers[index].usage === 'kv') touched.set(index, this.#places.get(index) as Bound);
      }
      for (const { buffer } of Object.values(record.outputs)) {
        const entry = touched.get(buffer);
        if (entry !== undefined) written.set(buffer, entry);
      }
    }
    return { touched: [...touched.values()], written: [...written.values()] };
  }

  async #repack(steps: ReturnType<typeof repackSteps>, checkAlive: () => void): Promise<readonly RepackedTensor[]> {
    if (steps.length === 0) return [];
    const { queue } = this.#options;
    const { heap, runner } = this.#memory;
    const { address, region, finish } = writeRepackJob(steps, heap, runner.numThreads);
    try {
      await queue.run({ address, begin: 0, end: steps.length, share: workersOnly, runner }, undefined, checkAlive);
      return finish().map(({ tensor }) => tensor);
    } finally {
      queue.whenIdle(() => heap.free(region));
    }
  }
}

function externalsOfAll({ records }: Program): Set<number> {
  return new Set(records.flatMap((record) => [...externalsOf(record)]));
}
