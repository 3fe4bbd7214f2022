/**
 * The cache buffers of a model as bytes: rows of blocks (`kv.*`) and rows of recurrent states (`state.*`), whatever they
 * hold. Carries out what the block manager asks for; changes wait in a queue until no step runs.
 */
import type { BlockChanges } from '@winnow/kv-cache';
import { slotPositionsName } from '@winnow/models';
import type { Backend, BufferHandle, Program } from '@winnow/ops';
import type { ReportEvent } from '../metrics/events.js';
import { buffersOf, isSlotBuffer } from './program-buffers.js';

/** A cache buffer: `numRows` rows of the same size, one after the other. */
export interface KvBuffer {
  readonly name: string;
  readonly rowBytes: number;
  readonly numRows: number;
  /** Where rows are groups of slots, as those of keys and values: bytes of a slot in a group. */
  readonly slotBytes: number | undefined;
}

export interface KvMemoryStatistics {
  readonly numCopiedBlocks: number;
  readonly copiedBytes: number;
}

export interface KvMemory {
  /** One row per block of the pool. */
  readonly blockBuffers: readonly KvBuffer[];
  /** One row per recurrent state. */
  readonly stateBuffers: readonly KvBuffer[];
  /** Bytes of one block in all buffers together. */
  readonly blockBytes: number;
  /** Notes changes to be carried out before the next step. */
  queue(changes: BlockChanges): void;
  /** Carries out what is queued; `undefined` when that is done already. No step may run meanwhile. */
  flush(): Promise<void> | undefined;
  /** Copies bytes of a row out, from `byteOffset` in the row on. */
  read(buffer: KvBuffer, row: number, byteOffset: number, target: Uint8Array): Promise<void>;
  write(buffer: KvBuffer, row: number, byteOffset: number, bytes: Uint8Array): Promise<void>;
  statistics(): KvMemoryStatistics;
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
  /** Hears of pages outside the pool that no sequence has any more. */
  readonly onPagesDropped?: (pageIds: readonly number[]) => void;
}

export function createKvMemory(
  backend: Backend,
  programs: readonly Program[],
  buffers: ReadonlyMap<string, BufferHandle>,
  { numBlocks, numStates, report, onPagesDropped }: KvMemoryOptions,
): KvMemory {
  const handles = new Map<KvBuffer, BufferHandle>();
  const blockBuffers: KvBuffer[] = [];
  const stateBuffers: KvBuffer[] = [];
  for (const { name, usage, sizeBytes } of buffersOf(programs)) {
    if (usage !== 'kv' || isSlotBuffer(name)) continue;
    const isState = name.startsWith('state.');
    const numRows = isState ? numStates : numBlocks;
    const rowBytes = sizeBytes / numRows;
    const buffer = { name, numRows, rowBytes, slotBytes: isState ? undefined : slotBytesOf(programs, name, rowBytes) };
    handles.set(buffer, buffers.get(name) as BufferHandle);
    (isState ? stateBuffers : blockBuffers).push(buffer);
  }
  const slotPositions = buffers.get(slotPositionsName);
  const blockBytes = blockBuffers.reduce((sum, { rowBytes }) => sum + rowBytes, 0);
  let queued: BlockChanges[] = [];
  let numCopiedBlocks = 0;

  function copyRow(buffer: KvBuffer, from: number, to: number): Promise<void> {
    const handle = handles.get(buffer) as BufferHandle;
    const { rowBytes } = buffer;
    return backend.copy(handle, from * rowBytes, handle, to * rowBytes, rowBytes);
  }

  async function carryOut(): Promise<void> {
    while (queued.length > 0) {
      const changes = queued;
      queued = [];
      for (const { copies, clearedSlots } of changes) {
        for (const { from, to } of copies) {
          await Promise.all(blockBuffers.map((buffer) => copyRow(buffer, from, to)));
        }
        numCopiedBlocks += copies.length;
        if (copies.length > 0) {
          report({ kind: 'copied', numBlocks: copies.length, sizeBytes: copies.length * blockBytes });
        }
        if (slotPositions === undefined) continue;
        for (const slot of clearedSlots) {
          const view = backend.view(slotPositions);
          if (view === undefined) await backend.write(slotPositions, slot * 4, noPosition);
          else view.set(noPosition, slot * 4);
        }
      }
    }
  }

  return {
    blockBuffers,
    stateBuffers,
    blockBytes,
    queue(changes): void {
      if (changes.droppedPages.length > 0) onPagesDropped?.(changes.droppedPages);
      if (changes.copies.length > 0 || changes.clearedSlots.length > 0) queued.push(changes);
    },
    flush: () => (queued.length === 0 ? undefined : carryOut()),
    read: (buffer, row, byteOffset, target) =>
      backend.read(handles.get(buffer) as BufferHandle, row * buffer.rowBytes + byteOffset, target),
    write: (buffer, row, byteOffset, bytes) =>
      backend.write(handles.get(buffer) as BufferHandle, row * buffer.rowBytes + byteOffset, bytes),
    statistics: () => ({ numCopiedBlocks, copiedBytes: numCopiedBlocks * blockBytes }),
  };
}
