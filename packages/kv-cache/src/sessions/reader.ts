/** Reads session files. Nothing in a file is believed before its checksum and its bounds are. */
import type { ByteSource } from '@winnow/bytes';
import { ArgumentError, FormatError } from '@winnow/tensor';
import {
  checksumBytes,
  checksumOf,
  chunkSeed,
  maxChunkBytes,
  maxHeaderBytes,
  maxNameLength,
  maxSections,
  minChunkBytes,
  paddedBytes,
  preambleBytes,
  sessionMagic,
  sessionVersion,
  storedBytes,
  type SessionHeader,
  type SessionOptionValue,
} from './layout.js';

export interface SessionFile extends SessionHeader {
  /**
   * Fills `target` with a section's bytes from `byteOffset` on, checking every chunk on the way. One chunk is kept in memory,
   * so reading in order is cheap.
   * @throws {FormatError} when a chunk is damaged
   * @throws {ArgumentError} when there is no such section or range
   */
  read(name: string, byteOffset: number, target: Uint8Array, options?: { signal?: AbortSignal }): Promise<void>;
  /** All bytes of a section. For small ones. */
  readAll(name: string, options?: { signal?: AbortSignal }): Promise<Uint8Array<ArrayBuffer>>;
  /** Reads everything. @throws {FormatError} for the first damaged chunk */
  verify(options?: { signal?: AbortSignal }): Promise<void>;
}

interface StoredSection {
  readonly index: number;
  readonly sizeBytes: number;
  readonly fileOffset: number;
}

/**
 * Opens a session file and checks its header; sections are checked when they are read.
 * @throws {FormatError} with offset and field, for anything that is not a whole session file of this version
 * @throws {IoError} when reading fails
 */
export async function openSession(source: ByteSource, options: { signal?: AbortSignal } = {}): Promise<SessionFile> {
  const fail = (byteOffset: number, field: string, message: string): never => {
    throw new FormatError({ source: source.name, byteOffset, field, message });
  };
  if (source.sizeBytes < preambleBytes) {
    fail(0, 'preamble', `ends early, expected ${preambleBytes} bytes, got ${source.sizeBytes}`);
  }
  const preamble = new Uint8Array(preambleBytes);
  await source.read(0, preamble, options);
  if (sessionMagic.some((byte, i) => preamble[i] !== byte)) fail(0, 'magic', 'this is not a session file');
  const words = new Uint32Array(preamble.buffer);
  if (words[2] !== sessionVersion) fail(8, 'version', `expected ${sessionVersion}, got ${words[2]}`);
  const jsonBytes = words[3];
  const headerBytes = paddedBytes(jsonBytes);
  if (jsonBytes > maxHeaderBytes) fail(12, 'header size', `expected at most ${maxHeaderBytes}, got ${jsonBytes}`);
  const fileBytes = words[6] + words[7] * 2 ** 32;
  if (fileBytes !== source.sizeBytes) {
    fail(24, 'file size', `expected ${fileBytes} bytes, got ${source.sizeBytes}: the file was cut or has grown`);
  }
  if (preambleBytes + headerBytes > fileBytes) {
    fail(12, 'header size', `expected at most ${fileBytes - preambleBytes}, got ${headerBytes}`);
  }
  const bytes = new Uint8Array(headerBytes);
  await source.read(preambleBytes, bytes, options);
  const headerChecksum = checksumOf(bytes, 0);
  if (headerChecksum[0] !== words[4] || headerChecksum[1] !== words[5]) {
    fail(16, 'header checksum', 'the header is damaged');
  }
  const header = parseHeader(bytes.subarray(0, jsonBytes), (field, message) => fail(preambleBytes, field, message));
  const { chunkBytes } = header;
  const sections = new Map<string, StoredSection>();
  let fileOffset = preambleBytes + headerBytes;
  for (const [index, { name, sizeBytes }] of header.sections.entries()) {
    if (sections.has(name)) fail(preambleBytes, 'sections', `"${name}" is there twice`);
    sections.set(name, { index, sizeBytes, fileOffset });
    fileOffset += storedBytes(sizeBytes, chunkBytes);
  }
  if (fileOffset !== fileBytes) fail(preambleBytes, 'sections', `they end at ${fileOffset}, the file at ${fileBytes}`);

  const buffer = new Uint8Array(Math.min(chunkBytes + checksumBytes, fileBytes));
  let buffered = '';
  let turn: Promise<unknown> = Promise.resolve();

  /** A chunk, checked; a view of the buffer. */
  async function readChunk(
    name: string,
    section: StoredSection,
    chunk: number,
    signal?: AbortSignal,
  ): Promise<Uint8Array> {
    const length = Math.min(chunkBytes, section.sizeBytes - chunk * chunkBytes);
    const key = `${section.index}:${chunk}`;
    if (buffered === key) return buffer.subarray(0, length);
    buffered = '';
    const byteOffset = section.fileOffset + chunk * (chunkBytes + checksumBytes);
    await source.read(byteOffset, buffer.subarray(0, length + checksumBytes), signal === undefined ? {} : { signal });
    const sum = new Uint8Array(
      checksumOf(buffer.subarray(0, length), chunkSeed(headerChecksum, section.index, chunk)).buffer,
    );
    if (sum.some((byte, i) => buffer[length + i] !== byte)) {
      fail(
        byteOffset,
        `section "${name}"`,
        `bytes ${chunk * chunkBytes} to ${chunk * chunkBytes + length} are damaged`,
      );
    }
    buffered = key;
    return buffer.subarray(0, length);
  }

  async function readRange(name: string, byteOffset: number, target: Uint8Array, signal?: AbortSignal): Promise<void> {
    const section = sections.get(name);
    if (section === undefined) {
      throw new ArgumentError({ argument: 'section', expected: [...sections.keys()].join(' | '), actual: name });
    }
    const end = byteOffset + target.byteLength;
    if (!Number.isSafeInteger(byteOffset) || byteOffset < 0 || end > section.sizeBytes) {
      const expected = `a range within [0, ${section.sizeBytes})`;
      throw new ArgumentError({ argument: `range of section "${name}"`, expected, actual: `[${byteOffset}, ${end})` });
    }
    for (let position = byteOffset; position < end;) {
      const chunk = Math.floor(position / chunkBytes);
      const bytesOfChunk = await readChunk(name, section, chunk, signal);
      const begin = position - chunk * chunkBytes;
      const count = Math.min(bytesOfChunk.byteLength - begin, end - position);
      target.set(bytesOfChunk.subarray(begin, begin + count), position - byteOffset);
      position += count;
    }
  }

  /** Reads take turns: they share the buffer. */
  const read: SessionFile['read'] = (name, byteOffset, target, { signal } = {}) => {
    const reading = turn.then(() => readRange(name, byteOffset, target, signal));
    turn = reading.catch(() => undefined);
    return reading;
  };

  return {
    ...header,
    read,
    async readAll(name, readOptions) {
      const target = new Uint8Array(sections.get(name)?.sizeBytes ?? 0);
      await read(name, 0, target, readOptions);
      return target;
    },
    async verify(readOptions) {
      const piece = new Uint8Array(Math.min(chunkBytes, fileBytes));
      for (const { name, sizeBytes } of header.sections) {
        for (let position = 0; position < sizeBytes; position += chunkBytes) {
          await read(name, position, piece.subarray(0, Math.min(chunkBytes, sizeBytes - position)), readOptions);
        }
      }
    },
  };
}

/**
 * Checks that a session belongs to a model and its options.
 * @throws {FormatError} naming the first thing that differs
 */
export function checkSession(
  session: SessionHeader,
  expected: Pick<SessionHeader, 'modelHash' | 'options'>,
  source = 'session',
): void {
  const compare = (field: string, wanted: unknown, found: unknown): void => {
    if (wanted === found) return;
    const message = `expected ${JSON.stringify(wanted) ?? 'none'}, got ${JSON.stringify(found) ?? 'none'}`;
    throw new FormatError({ source, field, message });
  };
  compare('modelHash', expected.modelHash, session.modelHash);
  for (const name of new Set([...Object.keys(expected.options), ...Object.keys(session.options)])) {
    compare(`options.${name}`, expected.options[name], session.options[name]);
  }
}

function parseHeader(json: Uint8Array, fail: (field: string, message: string) => never): SessionHeader {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(json));
  } catch (error) {
    fail('header', error instanceof Error ? error.message : String(error));
  }
  const isObject = (item: unknown): item is Record<string, unknown> =>
    typeof item === 'object' && item !== null && !Array.isArray(item);
  if (!isObject(value)) return fail('header', 'expected an object');
  const { modelHash, options, metadata, chunkBytes, sections } = value;
  if (typeof modelHash !== 'string') return fail('modelHash', 'expected a string');
  if (!isObject(options)) return fail('options', 'expected an object');
  for (const [name, option] of Object.entries(options)) {
    if (typeof option === 'object' && option !== null) fail(`options.${name}`, 'expected a plain value');
  }
  const isSize = (size: unknown): size is number => Number.isSafeInteger(size) && (size as number) >= 0;
  if (!isSize(chunkBytes) || chunkBytes < minChunkBytes || chunkBytes > maxChunkBytes) {
    return fail('chunkBytes', `expected ${minChunkBytes} to ${maxChunkBytes}, got ${String(chunkBytes)}`);
  }
  if (!Array.isArray(sections) || sections.length > maxSections) {
    return fail('sections', `expected an array of at most ${maxSections}`);
  }
  for (const section of sections as unknown[]) {
    if (!isObject(section)) return fail('sections', 'expected objects');
    const { name, sizeBytes } = section;
    if (typeof name !== 'string' || name.length === 0 || name.length > maxNameLength) {
      return fail('sections.name', `expected 1 to ${maxNameLength} characters`);
    }
    if (!isSize(sizeBytes)) return fail('sections.sizeBytes', `expected a size, got ${String(sizeBytes)}`);
  }
  return {
    modelHash,
    options: options as Readonly<Record<string, SessionOptionValue>>,
    metadata: (metadata ?? null) as SessionHeader['metadata'],
    chunkBytes,
    sections: sections as SessionHeader['sections'],
  };
}
