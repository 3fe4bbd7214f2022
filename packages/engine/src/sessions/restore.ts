/** Restores sessions from files. */
import type { ByteSource } from '@winnow/bytes';
import { checkSession, openSession, type JsonValue, type OpenSessionOptions, type SessionFile } from '@winnow/kv-cache';
import { slotPositionsName } from '@winnow/models';
import { FormatError, WinnowError } from '@winnow/tensor';
import type { KvBuffer } from '../memory/kv-memory.js';
import type { KvPool } from '../runtime/kv-pool.js';
import { Sequence } from '../runtime/sequence.js';
import { eachPart, massesName, type SessionModel, type SessionParts } from './file.js';
import { decodeGeneration } from './generation-codec.js';
import { placeSaved, type Placement } from './placement.js';

/**
 * Reads a session into new blocks. The source stays open.
 * @throws {FormatError} for a damaged file, for one of another key, and for one of another model or with different options
 * @throws {CapacityError} when the cache has no room
 */
export async function restoreSession(
  model: SessionModel,
  source: ByteSource,
  options: OpenSessionOptions,
): Promise<SessionParts & { readonly sequence: Sequence }> {
  const file = await openSession(source, options);
  checkSession(file, model.sessionKey, source.name);
  return new SessionRestorer(model, source, file, options.signal).restore();
}

/** Bytes copied from the file to the cache at a time. */
const pieceBytes = 1024 * 1024;

/** The tokens of a session, as in the file. */
interface SavedTokens {
  readonly tokens: Int32Array;
  readonly positions: Int32Array;
  /** With an eviction rule that tracks attention mass. */
  readonly masses: Float64Array | undefined;
}

interface SavedMetadata {
  readonly generation?: JsonValue;
  readonly caller?: JsonValue;
  /** Of sequences whose rotation depends on the length of their prompt. */
  readonly rotaryKey?: JsonValue;
}

class SessionRestorer {
  readonly #model: SessionModel;
  readonly #source: ByteSource;
  readonly #file: SessionFile;
  readonly #options: { readonly signal?: AbortSignal };
  readonly #buffers: readonly KvBuffer[];
  readonly #fail = (field: string, message: string): never => {
    throw new FormatError({ source: this.#source.name, field, message });
  };

  constructor(model: SessionModel, source: ByteSource, file: SessionFile, signal: AbortSignal | undefined) {
    this.#model = model;
    this.#source = source;
    this.#file = file;
    this.#options = signal === undefined ? {} : { signal };
    this.#buffers = model.pool.memory.contentBuffers;
  }

  async restore(): Promise<SessionParts & { readonly sequence: Sequence }> {
    const { pool, scheduler, config } = this.#model;
    const saved = await this.#readTokens();
    const { generation, caller } = this.#metadata;
    const readInts = (name: string): Promise<Int32Array> => this.#readInts(name);
    const state = await decodeGeneration(generation ?? null, readInts, config, this.#fail);
    const numBlocks = Math.ceil(saved.positions.length / pool.manager.blockSize);
    for (const buffer of this.#buffers) this.#checkRows(buffer, numBlocks);
    const flush = async (): Promise<void> => void (await pool.memory.flush());
    // with KV offload, no step may run until the blocks are filled
    const sequence =
      pool.tiers === undefined
        ? await this.#fill(saved, () => scheduler.exclusive(flush))
        : await scheduler.exclusive(() => this.#fill(saved, flush));
    pool.report({ kind: 'restored', numTokens: saved.tokens.length, sizeBytes: this.#source.sizeBytes });
    return { sequence, state, metadata: caller ?? null };
  }

  async #readTokens(): Promise<SavedTokens> {
    const { pool, config } = this.#model;
    const tokens = await this.#readInts('tokens');
    const positions = await this.#readInts('positions');
    const masses = pool.heavyHitters && (await this.#readMasses(tokens.length));
    const wrong = tokens.find((id) => (id < 0 && config.imageTokenId === undefined) || id >= config.vocabSize);
    if (wrong !== undefined) this.#fail('section "tokens"', `expected ids below ${config.vocabSize}, got ${wrong}`);
    return { tokens, positions, masses };
  }

  async #readAll(name: string): Promise<Uint8Array<ArrayBuffer>> {
    if (!this.#file.sections.some((section) => section.name === name)) this.#fail(`section "${name}"`, 'missing');
    return this.#file.readAll(name, this.#options);
  }

  async #readInts(name: string): Promise<Int32Array> {
    const bytes = await this.#readAll(name);
    if (bytes.byteLength % 4 !== 0) {
      this.#fail(`section "${name}"`, `expected whole integers, got ${bytes.byteLength} bytes`);
    }
    return new Int32Array(bytes.buffer);
  }

  async #readMasses(numTokens: number): Promise<Float64Array> {
    const bytes = await this.#readAll(massesName);
    const expected = numTokens * Float64Array.BYTES_PER_ELEMENT;
    if (bytes.byteLength !== expected) {
      this.#fail(`section "${massesName}"`, `expected ${expected} bytes, got ${bytes.byteLength}`);
    }
    return new Float64Array(bytes.buffer);
  }

  /** @throws {FormatError} when the section of a buffer does not hold that many rows */
  #checkRows({ name, rowBytes }: KvBuffer, numRows: number): void {
    const expected = numRows * rowBytes;
    const found = this.#file.sections.find((section) => section.name === name);
    if (found?.sizeBytes === expected) return;
    this.#fail(`section "${name}"`, `expected ${expected} bytes, got ${found?.sizeBytes ?? 'none'}`);
  }

  /** @param flush applies queued changes, which may concern blocks that now belong to the session */
  async #fill(saved: SavedTokens, flush: () => Promise<void>): Promise<Sequence> {
    const { pool } = this.#model;
    const placement = await placeSaved(pool, saved.positions, (buffer, row, target) =>
      this.#file.read(buffer.name, row * buffer.rowBytes, target, this.#options),
    );
    const sequence = this.#createSequence(saved.tokens, placement);
    try {
      await flush();
      await this.#fillBlocks([...sequence.view.blocks], placement);
      await this.#fillState(sequence.state?.to ?? -1);
      if (saved.masses !== undefined) sequence.heavyHitters?.addMass([...saved.masses.keys()], saved.masses);
      sequence.commit(true);
      return sequence;
    } catch (error) {
      sequence.free();
      throw error;
    }
  }

  #createSequence(tokens: Int32Array, { positions, detachedPages }: Placement): Sequence {
    const { pool } = this.#model;
    try {
      return Sequence.restore(pool, { tokens, positions, detachedPages }, this.#file.mac, this.#rotaryKey());
    } catch (error) {
      pool.tiers?.drop(detachedPages.map(({ pageId }) => pageId));
      if (WinnowError.isInstance(error) && error.code === 'argument') this.#fail('section "positions"', error.message);
      throw error;
    }
  }

  get #metadata(): SavedMetadata {
    return (this.#file.metadata ?? {}) as SavedMetadata;
  }

  /** What the rotation of the saved keys depends on. */
  #rotaryKey(): number {
    const { rotaryKey = 0 } = this.#metadata;
    const { rotaryLengths } = this.#model.pool;
    const isKey = (key: number): boolean => (rotaryLengths === undefined ? key === 0 : rotaryLengths.isKey(key));
    if (typeof rotaryKey === 'number' && isKey(rotaryKey)) return rotaryKey;
    return this.#fail('metadata', `expected a rotaryKey of this model, got ${JSON.stringify(rotaryKey)}`);
  }

  async #fillBlocks(blocks: readonly number[], { firstTail, positions }: Placement): Promise<void> {
    for (const buffer of this.#buffers) {
      await this.#loadRows(buffer, blocks.slice(0, 1), 0);
      await this.#loadRows(buffer, blocks.slice(1), firstTail);
    }
    await writePositions(this.#model.pool, positions, blocks);
  }

  /** @param row of recurrent states, -1 for none */
  async #fillState(row: number): Promise<void> {
    if (row < 0) return;
    for (const buffer of this.#model.pool.memory.stateBuffers) {
      this.#checkRows(buffer, 1);
      await this.#loadRows(buffer, [row], 0);
    }
  }

  /** Fills rows of a buffer with those of its section from `firstRow` on. */
  async #loadRows(buffer: KvBuffer, rows: readonly number[], firstRow: number): Promise<void> {
    const { name, rowBytes } = buffer;
    const { memory } = this.#model.pool;
    const expected = rows.length * rowBytes;
    const piece = new Uint8Array(Math.min(pieceBytes, expected));
    for (let byteOffset = 0; byteOffset < expected; byteOffset += piece.byteLength) {
      const bytes = piece.subarray(0, Math.min(piece.byteLength, expected - byteOffset));
      await this.#file.read(name, firstRow * rowBytes + byteOffset, bytes, this.#options);
      await eachPart(rowBytes, byteOffset, bytes.byteLength, (row, at, begin, end) =>
        memory.write(buffer, rows[row] as number, at, bytes.subarray(begin, end)),
      );
    }
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
