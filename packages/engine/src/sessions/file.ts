/** Sessions as files: what is saved of a sequence and its generation, and how both come back. */
import type { ByteSink, ByteSource } from '@winnow/bytes';
import {
  bytesSection,
  checkSession,
  openSession,
  writeSession,
  type JsonValue,
  type SessionFile,
  type SessionOptionValue,
  type SessionSection,
} from '@winnow/kv-cache';
import { slotPositionsName } from '@winnow/models';
import { FormatError, WinnowError } from '@winnow/tensor';
import { decodeGeneration, encodeGeneration } from './generation-codec.js';
import { snapshotOf, type GenerationState } from '../generation/state.js';
import type { KvBuffer } from '../memory/kv-memory.js';
import { blocksInOrder, placeSaved, type RowPlace } from './placement.js';
import type { SessionFiles } from './location.js';
import type { LoadedModel } from '../generation/loaded-model.js';
import type { KvPool } from '../runtime/kv-pool.js';
import { Sequence } from '../runtime/sequence.js';

/** What has to be the same for a session to go on. */
export interface SessionKey {
  readonly modelHash: string;
  readonly options: Readonly<Record<string, SessionOptionValue>>;
}

/** A loaded model whose sessions can be saved. */
export interface SessionModel extends LoadedModel {
  /** What saved sessions have to agree with. */
  readonly sessionKey: SessionKey;
  readonly files: SessionFiles;
}

/** What a session has besides its sequence. */
export interface SessionParts {
  readonly state: GenerationState | undefined;
  /** The caller's own. */
  readonly metadata: JsonValue;
}

export interface SessionSize {
  readonly numTokens: number;
  readonly sizeBytes: number;
}

/** Bytes that go from the file to the cache at a time. */
const pieceBytes = 1024 * 1024;

/**
 * Writes a session and closes the sink. Other sessions go on meanwhile, and this one too: what is written is a fork.
 * @param parts asked for between two steps
 */
export async function saveSession(
  { pool, scheduler, sessionKey }: SessionModel,
  sequence: Sequence,
  parts: () => SessionParts,
  sink: ByteSink,
  signal: AbortSignal | undefined,
): Promise<SessionSize> {
  try {
    const draft = await scheduler.exclusive(async () => {
      await pool.memory.flush();
      const made = await draftOf(pool, sequence, parts());
      if (made.isStill) return made;
      // contents with gaps have room anywhere: no step may run until they are written
      const sizeBytes = await writeDraft(made, sessionKey, sink, signal);
      return { ...made, sizeBytes };
    });
    const sizeBytes = draft.sizeBytes ?? (await writeDraft(draft, sessionKey, sink, signal));
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
  /** Steps that follow leave what it refers to alone. */
  readonly isStill: boolean;
  readonly sizeBytes?: number;
  /** Gives back what it refers to. */
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
  const forkState = sequence.state?.fork();
  const release = (): void => {
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
    // the block that has room is written to by the next steps: its bytes are copied, and the fork lets go of it
    const numWhole = Math.floor(positions.length / manager.blockSize);
    const whole = places.slice(0, numWhole);
    const last = await readLastRows(pool, places.slice(numWhole) as number[], positions.length);
    if (isStill) pool.apply(manager.truncate(forkId, numWhole * manager.blockSize));
    for (const buffer of savedBuffers(pool)) sections.push(rowsSection(pool, buffer, whole, last.get(buffer)));
    const stateRow = forkState?.from ?? -1;
    if (stateRow >= 0) for (const buffer of memory.stateBuffers) sections.push(rowsSection(pool, buffer, [stateRow]));
    const json = { generation: generation?.json ?? null, caller: metadata };
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
  signal: AbortSignal | undefined,
): Promise<number> {
  try {
    return await writeSession(sink, { ...key, metadata, sections }, signal === undefined ? {} : { signal });
  } finally {
    release();
  }
}

/**
 * Reads a session into blocks of its own. The source stays open.
 * @throws {FormatError} for a damaged file, and for one of another model or with other options
 * @throws {CapacityError} when the cache has no room
 */
export async function loadSession(
  { pool, scheduler, sessionKey, config }: SessionModel,
  source: ByteSource,
  signal: AbortSignal | undefined,
): Promise<SessionParts & { readonly sequence: Sequence }> {
  const withSignal = signal === undefined ? {} : { signal };
  const file = await openSession(source, withSignal);
  checkSession(file, sessionKey, source.name);
  const fail = (field: string, message: string): never => {
    throw new FormatError({ source: source.name, field, message });
  };
  const readAll = async (name: string): Promise<Uint8Array<ArrayBuffer>> => {
    if (!file.sections.some((section) => section.name === name)) fail(`section "${name}"`, 'missing');
    return file.readAll(name, withSignal);
  };
  const readInts = async (name: string): Promise<Int32Array> => {
    const bytes = await readAll(name);
    if (bytes.byteLength % 4 !== 0) fail(`section "${name}"`, `expected whole integers, got ${bytes.byteLength} bytes`);
    return new Int32Array(bytes.buffer);
  };
  async function readMasses(numTokens: number): Promise<Float64Array> {
    const bytes = await readAll(massesName);
    const expected = numTokens * Float64Array.BYTES_PER_ELEMENT;
    if (bytes.byteLength !== expected)
      fail(`section "${massesName}"`, `expected ${expected} bytes, got ${bytes.byteLength}`);
    return new Float64Array(bytes.buffer);
  }
  const tokens = await readInts('tokens');
  const positions = await readInts('positions');
  const masses = pool.heavyHitters && (await readMasses(tokens.length));
  const wrong = tokens.find((id) => id < 0 || id >= config.vocabSize);
  if (wrong !== undefined) fail('section "tokens"', `expected ids below ${config.vocabSize}, got ${wrong}`);
  const { generation, caller } = (file.metadata ?? {}) as { generation?: JsonValue; caller?: JsonValue };
  const state = await decodeGeneration(generation ?? null, readInts, config.vocabSize, fail);

  for (const buffer of savedBuffers(pool)) {
    checkRows(file, buffer, Math.ceil(positions.length / pool.manager.blockSize), fail);
  }

  /** @param flush carries out what is queued, which concerns blocks that may be ours now */
  async function fill(flush: () => Promise<void>): Promise<Sequence> {
    const placement = await placeSaved(pool, positions, (buffer, row, target) =>
      file.read(buffer.name, row * buffer.rowBytes, target, withSignal),
    );
    const { firstTail, detachedPages } = placement;
    let restored: Sequence;
    try {
      restored = Sequence.restore(pool, { tokens, positions: placement.positions, detachedPages });
    } catch (error) {
      pool.tiers?.drop(detachedPages.map(({ pageId }) => pageId));
      if (WinnowError.isInstance(error) && error.code === 'argument') fail('section "positions"', error.message);
      throw error;
    }
    try {
      await flush();
      const blocks = [...restored.view.blocks];
      for (const buffer of savedBuffers(pool)) {
        await loadRows(pool, file, buffer, blocks.slice(0, 1), 0, withSignal);
        await loadRows(pool, file, buffer, blocks.slice(1), firstTail, withSignal);
      }
      await writePositions(pool, placement.positions, blocks);
      const to = restored.state?.to ?? -1;
      if (to >= 0) {
        for (const buffer of pool.memory.stateBuffers) {
          checkRows(file, buffer, 1, fail);
          await loadRows(pool, file, buffer, [to], 0, withSignal);
        }
      }
      if (masses !== undefined) restored.heavyHitters?.addMass([...masses.keys()], masses);
      restored.commit(true);
      return restored;
    } catch (error) {
      restored.free();
      throw error;
    }
  }
  const flush = async (): Promise<void> => void (await pool.memory.flush());
  // where blocks may leave the pool no step may run until they are filled
  const sequence =
    pool.tiers === undefined
      ? await fill(() => scheduler.exclusive(flush))
      : await scheduler.exclusive(() => fill(flush));
  pool.report({ kind: 'restored', numTokens: tokens.length, sizeBytes: source.sizeBytes });
  return { sequence, state, metadata: caller ?? null };
}

const massesName = 'keyMasses';

/** How much each token was looked at, where that is measured. */
function massSections({ view, heavyHitters }: Sequence): SessionSection[] {
  if (heavyHitters === undefined) return [];
  const masses = Float64Array.from({ length: view.numTokens }, (_, position) => heavyHitters.score(position));
  return [bytesSection(massesName, masses)];
}

/** Positions are a section of their own. */
function savedBuffers({ memory }: KvPool): readonly KvBuffer[] {
  return memory.blockBuffers.filter(({ name }) => name !== slotPositionsName);
}

/** Copies of the block that is partly filled, if there is one; what others left in the rest of it stays here. */
async function readLastRows(
  pool: KvPool,
  blocks: readonly number[],
  numSlots: number,
): Promise<Map<KvBuffer, Uint8Array<ArrayBuffer>>> {
  const { blockSize } = pool.manager;
  const numUsed = numSlots % blockSize;
  const rows = new Map<KvBuffer, Uint8Array<ArrayBuffer>>();
  for (const buffer of savedBuffers(pool)) {
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

/** The rows of a buffer as a section, then bytes that are in memory already. */
function rowsSection(
  pool: KvPool,
  buffer: KvBuffer,
  rows: readonly RowPlace[],
  rest = new Uint8Array(0),
): SessionSection {
  const { rowBytes } = buffer;
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

/** @throws what `fail` makes, when the section does not hold that many rows of the buffer */
function checkRows(
  file: SessionFile,
  { name, rowBytes }: KvBuffer,
  numRows: number,
  fail: (field: string, message: string) => never,
): void {
  const expected = numRows * rowBytes;
  const found = file.sections.find((section) => section.name === name);
  if (found?.sizeBytes !== expected)
    fail(`section "${name}"`, `expected ${expected} bytes, got ${found?.sizeBytes ?? 'none'}`);
}

/** Fills rows of a buffer with those of its section from `firstRow` on. */
async function loadRows(
  pool: KvPool,
  file: SessionFile,
  buffer: KvBuffer,
  rows: readonly number[],
  firstRow: number,
  options: { signal?: AbortSignal },
): Promise<void> {
  const { name, rowBytes } = buffer;
  const expected = rows.length * rowBytes;
  const piece = new Uint8Array(Math.min(pieceBytes, expected));
  for (let byteOffset = 0; byteOffset < expected; byteOffset += piece.byteLength) {
    const bytes = piece.subarray(0, Math.min(piece.byteLength, expected - byteOffset));
    await file.read(name, firstRow * rowBytes + byteOffset, bytes, options);
    await eachPart(rowBytes, byteOffset, bytes.byteLength, (row, at, begin, end) =>
      pool.memory.write(buffer, rows[row] as number, at, bytes.subarray(begin, end)),
    );
  }
}

/** Cuts `length` bytes from `byteOffset` on where rows end. */
async function eachPart(
  rowBytes: number,
  byteOffset: number,
  length: number,
  visit: (row: number, at: number, begin: number, end: number) => Promise<void>,
): Promise<void> {
  for (let begin = 0; begin < length;) {
    const row = Math.floor((byteOffset + begin) / rowBytes);
    const at = byteOffset + begin - row * rowBytes;
    const end = Math.min(length, begin + rowBytes - at);
    await visit(row, at, begin, end);
    begin = end;
  }
}

async function writePositions(
  { memory, manager }: KvPool,
  positions: Int32Array,
  blocks: readonly number[],
): Promise<void> {
  const buffer = memory.blockBuffers.find(({ name }) => name === slotPositionsName);
  if (buffer === undefined) return;
  for (const [index, block] of blocks.entries()) {
    const row = new Int32Array(manager.blockSize).fill(-1);
    row.set(positions.subarray(index * manager.blockSize, (index + 1) * manager.blockSize));
    await memory.write(buffer, block, 0, new Uint8Array(row.buffer));
  }
}
