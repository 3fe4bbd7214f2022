/** Saves sessions to files. */
import type { ByteSink } from '@winnow/bytes';
import {
  bytesSection,
  writeSession,
  type JsonValue,
  type SessionSection,
  type WriteSessionOptions,
} from '@winnow/kv-cache';
import { snapshotOf } from '../generation/state.js';
import type { KvBuffer } from '../memory/kv-memory.js';
import type { KvPool } from '../runtime/kv-pool.js';
import type { SessionKey } from '../runtime/prompt-cache/prompt-cache.js';
import type { Sequence } from '../runtime/sequence.js';
import { eachPart, massesName, type SessionModel, type SessionParts, type SessionSize } from './file.js';
import { encodeGeneration } from './generation-codec.js';
import { blocksInOrder, type RowPlace } from './placement.js';

/**
 * Writes a session and closes the sink. All sessions continue meanwhile, since what is written is a fork.
 * @param parts called between two steps
 */
export async function saveSession(
  { pool, scheduler, sessionKey }: SessionModel,
  sequence: Sequence,
  parts: () => SessionParts,
  sink: ByteSink,
  options: WriteSessionOptions,
): Promise<SessionSize> {
  try {
    const draft = await scheduler.exclusive(async () => {
      await scheduler.recompute(sequence);
      await pool.memory.flush();
      const made = await draftOf(pool, sequence, parts());
      if (made.isStill) return made;
      // contents with gaps may be overwritten anywhere, so no step may run until they are saved
      const sizeBytes = await writeDraft(made, sessionKey, sink, options);
      return { ...made, sizeBytes };
    });
    const sizeBytes = draft.sizeBytes ?? (await writeDraft(draft, sessionKey, sink, options));
    const size = { numTokens: draft.numTokens, sizeBytes };
    pool.report({ kind: 'saved', ...size });
    return size;
  } catch (error) {
    await sink.abort();
    throw error;
  }
}

/** A session as it was between two steps. */
interface Draft {
  readonly numTokens: number;
  readonly sections: readonly SessionSection[];
  readonly metadata: JsonValue;
  /** Whether later steps leave its blocks alone. */
  readonly isStill: boolean;
  readonly sizeBytes?: number;
  /** Releases its blocks. */
  readonly release: () => void;
}

async function draftOf(pool: KvPool, sequence: Sequence, { state, metadata }: SessionParts): Promise<Draft> {
  const { manager, memory } = pool;
  const { view } = sequence;
  const { numTokens } = view;
  // blocks may leave the pool while steps run
  const isStill = view.isShareable && pool.tiers === undefined;
  const { positions, places } = blocksInOrder(view, manager.blockSize);
  const forkId = manager.fork(view.id).id;
  pool.drafts.add(forkId);
  const forkState = sequence.state?.fork();
  const release = (): void => {
    pool.drafts.delete(forkId);
    pool.apply(manager.free(forkId));
    forkState?.free();
    pool.onFreed();
  };
  try {
    const generation = state === undefined ? undefined : encodeGeneration(snapshotOf(state));
    const sections: SessionSection[] = [
      bytesSection('tokens', view.tokens.slice()),
      bytesSection('positions', positions),
      ...massSections(sequence),
      ...(generation?.sections ?? []),
    ];
    // the next steps write to the partly filled block, so its bytes are copied and the fork releases it
    const numWhole = Math.floor(positions.length / manager.blockSize);
    const whole = places.slice(0, numWhole);
    const last = await readLastRows(pool, places.slice(numWhole) as number[], positions.length);
    if (isStill) pool.apply(manager.truncate(forkId, numWhole * manager.blockSize));
    for (const buffer of pool.memory.contentBuffers) sections.push(rowsSection(pool, buffer, whole, last.get(buffer)));
    const stateRow = forkState?.from ?? -1;
    if (stateRow >= 0) for (const buffer of memory.stateBuffers) sections.push(rowsSection(pool, buffer, [stateRow]));
    const { rotaryKey } = sequence;
    const json = { generation: generation?.json ?? null, caller: metadata, ...(rotaryKey > 0 && { rotaryKey }) };
    return { numTokens, sections, metadata: json, isStill, release };
  } catch (error) {
    release();
    throw error;
  }
}

async function writeDraft(
  { sections, metadata, release }: Draft,
  key: SessionKey,
  sink: ByteSink,
  options: WriteSessionOptions,
): Promise<number> {
  try {
    return await writeSession(sink, { ...key, metadata, sections }, options);
  } finally {
    release();
  }
}

/** The attention mass of each token, if it is tracked. */
function massSections({ view, heavyHitters }: Sequence): SessionSection[] {
  if (heavyHitters === undefined) return [];
  const masses = Float64Array.from({ length: view.numTokens }, (_, position) => heavyHitters.score(position));
  return [bytesSection(massesName, masses)];
}

/** Copies the partly filled block, if there is one; stale data in its unused slots is not copied. */
async function readLastRows(
  pool: KvPool,
  blocks: readonly number[],
  numSlots: number,
): Promise<Map<KvBuffer, Uint8Array<ArrayBuffer>>> {
  const { blockSize } = pool.manager;
  const numUsed = numSlots % blockSize;
  const rows = new Map<KvBuffer, Uint8Array<ArrayBuffer>>();
  for (const buffer of pool.memory.contentBuffers) {
    const bytes = new Uint8Array(blocks.length * buffer.rowBytes);
    for (const [index, block] of blocks.entries()) {
      const begin = index * buffer.rowBytes;
      await pool.memory.read(buffer, block, 0, bytes.subarray(begin, begin + buffer.rowBytes));
      const { slotBytes } = buffer;
      if (slotBytes === undefined) continue;
      for (let group = begin; group < begin + buffer.rowBytes; group += blockSize * slotBytes) {
        bytes.fill(0, group + numUsed * slotBytes, group + blockSize * slotBytes);
      }
    }
    rows.set(buffer, bytes);
  }
  return rows;
}

/** A section with the rows of a buffer, followed by bytes in memory. */
function rowsSection(
  pool: KvPool,
  buffer: KvBuffer,
  rows: readonly RowPlace[],
  rest = new Uint8Array(0),
): SessionSection {
  const { rowBytes } = buffer;
  const { lost } = pool;
  const inRows = rows.length * rowBytes;
  return {
    name: buffer.name,
    sizeBytes: inRows + rest.byteLength,
    async read(byteOffset, target): Promise<void> {
      await eachPart(
        rowBytes,
        byteOffset,
        Math.min(target.byteLength, Math.max(0, inRows - byteOffset)),
        (row, at, begin, end) => readPlace(pool, buffer, rows[row] as RowPlace, at, target.subarray(begin, end)),
      );
      if (pool.lost !== lost) throw pool.lost; // the rows were lost with the device
      const begin = Math.max(0, inRows - byteOffset);
      if (begin < target.byteLength) {
        const from = byteOffset + begin - inRows;
        target.set(rest.subarray(from, from + target.byteLength - begin), begin);
      }
    },
  };
}

async function readPlace(
  { memory, tiers }: KvPool,
  buffer: KvBuffer,
  place: RowPlace,
  byteOffset: number,
  target: Uint8Array,
): Promise<void> {
  if (typeof place === 'number') await memory.read(buffer, place, byteOffset, target);
  else await tiers?.read(buffer, place.pageId, byteOffset, target);
}
