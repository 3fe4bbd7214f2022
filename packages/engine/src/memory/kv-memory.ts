/**
 * The cache buffers of a model as bytes: rows of blocks (`kv.*`) and rows of recurrent states (`state.*`). Applies the
 * changes of the block manager, which are queued until no step runs.
 */
import type { BlockChanges } from '@winnow/kv-cache';
import { slotPositionsName } from '@winnow/models';
import { copyBytes, type Backend, type BufferHandle, type Program } from '@winnow/ops';
import type { ReportEvent } from '../metrics/events.js';
import { buffersOf, isSlotBuffer } from './program-buffers.js';

/** A cache buffer: `numRows` rows of the same size, one after the other. */
export interface KvBuffer {
  readonly name: string;
  readonly rowBytes: number;
  readonly numRows: number;
  /** For rows of groups of slots, such as keys and values: bytes of a slot in a group. */
  readonly slotBytes: number | undefined;
}

export interface KvMemoryStatistics {
  readonly numCopiedBlocks: number;
  readonly copiedBytes: number;
}

const noPosition = new Uint8Array(4).fill(0xff);

/** Keys and values are `[C, K, S, H]`. */
function slotBytesOf(programs: readonly Program[], name: string, rowBytes: number): number | undefined {
  if (!/\.(keys|values)$/.test(name)) return undefined;
  for (const { inputs, outputs, buffers } of programs.flatMap(({ records, buffers }) =>
    records.map((record) => ({ ...record, buffers })),
  )) {
    for (const tensor of [...Object.values(inputs), ...Object.values(outputs)]) {
      if (buffers[tensor.buffer]?.name !== name || tensor.shape.length !== 4) continue;
      const [, numHeads, blockSize] = tensor.shape;
      return rowBytes / (Number(numHeads) * Number(blockSize));
    }
  }
  return undefined;
}

export interface KvMemoryOptions {
  /** Rows of every `kv.*` buffer. */
  readonly numBlocks: number;
  /** Rows of every `state.*` buffer. */
  readonly numStates: number;
  readonly report: ReportEvent;
}

export class KvMemory {
  /** One row per block of the pool. */
  readonly blockBuffers: readonly KvBuffer[];
  /** All of them but the positions of slots. */
  readonly contentBuffers: readonly KvBuffer[];
  /** One row per recurrent state. */
  readonly stateBuffers: readonly KvBuffer[];
  /** Bytes of one block in all buffers together. */
  readonly blockBytes: number;
  readonly #backend: Backend;
  readonly #buffers: ReadonlyMap<string, BufferHandle>;
  readonly #report: ReportEvent;
  #queued: BlockChanges[] = [];
  #numCopiedBlocks = 0;

  constructor(
    backend: Backend,
    programs: readonly Program[],
    buffers: ReadonlyMap<string, BufferHandle>,
    { numBlocks, numStates, report }: KvMemoryOptions,
  ) {
    const all = buffersOf(programs).filter(({ name, usage }) => usage === 'kv' && !isSlotBuffer(name));
    const isState = ({ name }: { readonly name: string }): boolean => name.startsWith('state.');
    this.blockBuffers = all
      .filter((buffer) => !isState(buffer))
      .map(({ name, sizeBytes }) => {
        const rowBytes = sizeBytes / numBlocks;
        return { name, numRows: numBlocks, rowBytes, slotBytes: slotBytesOf(programs, name, rowBytes) };
      });
    this.contentBuffers = this.blockBuffers.filter(({ name }) => name !== slotPositionsName);
    this.stateBuffers = all.filter(isState).map(({ name, sizeBytes }) => ({
      name,
      numRows: numStates,
      rowBytes: sizeBytes / numStates,
      slotBytes: undefined,
    }));
    this.blockBytes = this.blockBuffers.reduce((sum, { rowBytes }) => sum + rowBytes, 0);
    this.#backend = backend;
    this.#buffers = buffers;
    this.#report = report;
  }

  /** Queues changes, which are applied before the next step. */
  queue(changes: BlockChanges): void {
    if (changes.copies.length > 0 || changes.clearedSlots.length > 0) this.#queued.push(changes);
  }

  /** Discards queued changes, since the cache is empty again. */
  forget(): void {
    this.#queued = [];
  }

  /** Applies queued changes; `undefined` if there are none. No step may run meanwhile. */
  flush(): Promise<void> | undefined {
    return this.#queued.length === 0 ? undefined : this.#carryOut();
  }

  /** Copies bytes of a row to `target`, from `byteOffset` in the row on. */
  read(buffer: KvBuffer, row: number, byteOffset: number, target: Uint8Array): Promise<void> {
    return this.#backend.read(this.#handle(buffer.name), row * buffer.rowBytes + byteOffset, target);
  }

  write(buffer: KvBuffer, row: number, byteOffset: number, bytes: Uint8Array): Promise<void> {
    return this.#backend.write(this.#handle(buffer.name), row * buffer.rowBytes + byteOffset, bytes);
  }

  statistics(): KvMemoryStatistics {
    return { numCopiedBlocks: this.#numCopiedBlocks, copiedBytes: this.#numCopiedBlocks * this.blockBytes };
  }

  #handle(name: string): BufferHandle {
    return this.#buffers.get(name) as BufferHandle;
  }

  async #carryOut(): Promise<void> {
    while (this.#queued.length > 0) {
      const changes = this.#queued;
      this.#queued = [];
      for (const { copies, clearedSlots } of changes) {
        await this.#copyBlocks(copies);
        await this.#clearSlots(clearedSlots);
      }
    }
  }

  /** Copy-on-write: copies the rows of blocks. */
  async #copyBlocks(copies: BlockChanges['copies']): Promise<void> {
    for (const { from, to } of copies) {
      await Promise.all(this.blockBuffers.map((buffer) => this.#copyRow(buffer, from, to)));
    }
    if (copies.length === 0) return;
    this.#numCopiedBlocks += copies.length;
    this.#report({ kind: 'copied', numBlocks: copies.length, sizeBytes: copies.length * this.blockBytes });
  }

  #copyRow({ name, rowBytes }: KvBuffer, from: number, to: number): Promise<void> {
    const handle = this.#handle(name);
    const [fromOffset, toOffset] = [from * rowBytes, to * rowBytes];
    return copyBytes(this.#backend, { from: handle, fromOffset, to: handle, toOffset, sizeBytes: rowBytes });
  }

  /** Marks slots as empty. */
  async #clearSlots(slots: BlockChanges['clearedSlots']): Promise<void> {
    const slotPositions = this.#buffers.get(slotPositionsName);
    if (slotPositions === undefined) return;
    for (const slot of slots) {
      const view = this.#backend.view(slotPositions);
      if (view === undefined) await this.#backend.write(slotPositions, slot * 4, noPosition);
      else view.set(noPosition, slot * 4);
    }
  }
}
