/** A page of all layers as a session file of one block, with its checksums. */
import { memorySink, memorySource } from '@winnow/bytes';
import { bytesSection, checkSession, openSession, writeSession } from '@winnow/kv-cache';
import { slotPositionsName } from '@winnow/models';
import { FormatError } from '@winnow/tensor';
import type { KvBuffer } from '../../memory/kv-memory.js';
import type { KvPool } from '../kv-pool.js';
import type { SessionKey } from './prompt-cache.js';

const tokensName = 'tokens';

/** The rows of a block, by buffer. */
export type PageRows = ReadonlyMap<KvBuffer, Uint8Array>;

/** Copies a block of the pool into a file. */
export async function encodePage(
  pool: KvPool,
  block: number,
  tokens: Int32Array,
  key: SessionKey,
): Promise<Uint8Array> {
  const sections = [bytesSection(tokensName, tokens)];
  for (const buffer of pool.memory.contentBuffers) {
    const row = new Uint8Array(buffer.rowBytes);
    await pool.memory.read(buffer, block, 0, row);
    sections.push(bytesSection(buffer.name, row));
  }
  const sink = memorySink();
  await writeSession(sink, { ...key, sections });
  return sink.toBytes();
}

/** @throws {FormatError} for a damaged file, and for one of another model, other options or other tokens */
export async function decodePage(
  pool: KvPool,
  file: Uint8Array,
  tokens: Int32Array,
  key: SessionKey,
): Promise<PageRows> {
  const source = memorySource(file);
  const session = await openSession(source);
  checkSession(session, key, source.name);
  const fail = (name: string, message: string): never => {
    throw new FormatError({ source: source.name, field: `section "${name}"`, message });
  };
  const readRow = async (name: string, sizeBytes: number): Promise<Uint8Array<ArrayBuffer>> => {
    const found = session.sections.find((section) => section.name === name)?.sizeBytes;
    if (found !== sizeBytes) fail(name, `expected ${sizeBytes} bytes, got ${found ?? 'none'}`);
    return session.readAll(name);
  };
  const stored = new Int32Array((await readRow(tokensName, tokens.byteLength)).buffer);
  if (stored.some((id, index) => id !== tokens[index])) fail(tokensName, 'expected those of the prompt, got others');
  const rows = new Map<KvBuffer, Uint8Array>();
  for (const buffer of pool.memory.contentBuffers) rows.set(buffer, await readRow(buffer.name, buffer.rowBytes));
  return rows;
}

/** Fills a block of the pool; its tokens begin at `firstPosition`. */
export async function writePage(pool: KvPool, block: number, firstPosition: number, rows: PageRows): Promise<void> {
  const { memory, manager } = pool;
  for (const [buffer, row] of rows) await memory.write(buffer, block, 0, row);
  const slotPositions = memory.blockBuffers.find(({ name }) => name === slotPositionsName);
  if (slotPositions === undefined) return;
  const positions = Int32Array.from({ length: manager.blockSize }, (_, slot) => firstPosition + slot);
  await memory.write(slotPositions, block, 0, new Uint8Array(positions.buffer));
}
