/**
 * Determines the scratch of records with the size functions beside the kernels, in a separate instance of the module
 * with a small memory.
 */
import type { NativeAttachment } from '@winnow/native';
import { recordWords, type Program } from '@winnow/ops';
import { invariant } from '@winnow/tensor';
import {
  attachNative,
  createMemory,
  instantiate,
  type Kernels,
  type WasmExports,
  type WasmMemory,
} from '../host/web-assembly.js';
import { heapBase, jobBlock, pageBytes, planEntry, planWords, taskAt } from '../kernels/layout.generated.js';

/** Memory for the words of one record and the symbols of a step. */
const memoryBytes = heapBase + 4 * pageBytes;
const scratchAlignment = 64;

// the layout of that memory
const jobAt = heapBase;
const entryAt = jobAt + 64;
const resultAt = entryAt + planWords * 4;
const scalarsAt = resultAt + 64;

export interface Scratch {
  /** Bytes that all threads share. */
  readonly sharedBytes: number;
  /** Bytes per thread. */
  readonly localBytes: number;
  /** Records that native kernels compute; the scratch suits these and those of the module. */
  readonly nativeRecords: ReadonlySet<number>;
}

export class ScratchMeter {
  readonly #memory: WasmMemory;
  readonly #exports: WasmExports;
  readonly #native: NativeAttachment | undefined;

  constructor({ module, native }: Kernels, isShared: boolean) {
    this.#memory = createMemory(memoryBytes, isShared);
    if (isShared) this.#memory.grow((memoryBytes - heapBase) / pageBytes);
    this.#exports = instantiate({ module }, this.#memory, () => 0);
    this.#native = attachNative(native, this.#memory);
  }

  /** Whether it knows what native kernels need; without that, none is used. */
  get hasNative(): boolean {
    return this.#native !== undefined;
  }

  /**
   * The maximum over all records, with every symbol at its capacity.
   * @param words the encoded program; addresses do not matter
   * @param usesNative whether native kernels compute what they can
   */
  measure(
    program: Program,
    words: Int32Array,
    plans: readonly { readonly flags: number }[],
    usesNative: boolean,
  ): Scratch {
    const memory = new Int32Array(this.#memory.buffer);
    const result = new Float64Array(this.#memory.buffer, resultAt, 2);
    const recordAt = this.#writeScalars(program, memory);
    let sharedBytes = 0;
    let localBytes = 0;
    const nativeRecords = new Set<number>();
    for (let at = 0, record = 0; at < words.length; at += words[at + recordWords.length], record++) {
      const length = words[at + recordWords.length];
      invariant(recordAt + length * 4 <= memoryBytes, 'a record fits the memory of the meter');
      memory.set(words.subarray(at, at + length), recordAt / 4);
      memory[(entryAt + planEntry.record) / 4] = recordAt;
      memory[(entryAt + planEntry.flags) / 4] = plans[record].flags;
      this.#exports.measureScratch(jobAt, entryAt, resultAt);
      sharedBytes = Math.max(sharedBytes, result[0]);
      localBytes = Math.max(localBytes, result[1]);
      if (!usesNative || this.#native?.measure(taskAt, result) !== true) continue;
      nativeRecords.add(record);
      sharedBytes = Math.max(sharedBytes, result[0]);
      localBytes = Math.max(localBytes, result[1]);
    }
    return { sharedBytes, localBytes: Math.ceil(localBytes / scratchAlignment) * scratchAlignment, nativeRecords };
  }

  /** Writes the capacities of symbols, the only scalars that records read here; returns where records may begin. */
  #writeScalars({ scalars, symbols }: Program, memory: Int32Array): number {
    const offsets = [...symbols.keys()].map((symbol) => scalars.slots.get(symbol)?.wordOffset ?? -1);
    const recordAt = scalarsAt + Math.ceil((Math.max(-1, ...offsets) + 1) / 2) * 8;
    invariant(recordAt < memoryBytes, 'the symbols fit the memory of the meter');
    memory[(jobAt + jobBlock.scalars) / 4] = scalarsAt;
    [...symbols.values()].forEach((capacity, index) => {
      const offset = offsets[index] as number;
      if (offset >= 0) memory[scalarsAt / 4 + offset] = capacity;
    });
    return recordAt;
  }
}
