/** Reads session files. Nothing in a file is trusted until its checksum and its bounds have been checked. */
import type { ByteSource } from '@winnow/bytes';
import { ArgumentError, checkOptions, FormatError, isRecord, jsonDepth, maxJsonDepth } from '@winnow/tensor';
import { Limiter } from '../limiter.js';
import { verifySource } from './authentication.js';
import {
  checksumBytes,
  checksumOf,
  chunkSeed,
  macBytes,
  macSectionName,
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

export interface OpenSessionOptions {
  /** The key that the file was written with: all of it is verified before anything is used. Default: none is needed. */
  readonly key?: Uint8Array;
  readonly signal?: AbortSignal;
}

export interface SessionFile extends SessionHeader {
  /** The verified MAC in hexadecimal digits; undefined when opened without a key. */
  readonly mac: string | undefined;
  /**
   * Fills `target` with a section's bytes from `byteOffset` on, checking every chunk on the way. One chunk is kept in
   * memory, so reading in order is cheap.
   * @throws {FormatError} when a chunk is damaged
   * @throws {ArgumentError} when there is no such section or range
   */
  read(name: string, byteOffset: number, target: Uint8Array, options?: { signal?: AbortSignal }): Promise<void>;
  /** All bytes of a (small) section. */
  readAll(name: string, options?: { signal?: AbortSignal }): Promise<Uint8Array<ArrayBuffer>>;
  /** Reads everything. @throws {FormatError} for the first damaged chunk */
  verify(options?: { signal?: AbortSignal }): Promise<void>;
}

interface StoredSection {
  readonly index: number;
  readonly sizeBytes: number;
  readonly fileOffset: number;
}

/** Rejects a file. */
type Fail = (byteOffset: number, field: string, message: string) => never;

/**
 * Opens a session file and checks its header; sections are checked when they are read.
 * @throws {FormatError} with offset and field, for anything other than a complete session file of this version; with a key
 * also for a file that was not written with this key
 * @throws {ArgumentError} for a short key, and with a key on a host without Web Crypto
 * @throws {IoError} when reading fails
 */
export async function openSession(source: ByteSource, options: OpenSessionOptions = {}): Promise<SessionFile> {
  checkOptions(options, { key: true, signal: true });
  const { key, signal } = options;
  const reading = signal === undefined ? {} : { signal };
  if (key === undefined) return openSource(source, undefined, reading);
  await readPreamble(source, failOf(source), reading);
  const verified = await verifySource(source, key, reading);
  if (verified !== undefined) return openSource(verified.source, verified.mac, reading);
  const { sections } = await openSource(source, undefined, reading);
  const last = sections.at(-1);
  const hasMac = last?.name === macSectionName && last.sizeBytes === macBytes;
  const found = hasMac ? 'one by another key, or of other contents' : 'none: the session was saved without a key';
  return failOf(source)(source.sizeBytes, 'mac', `expected a MAC by the given key, got ${found}`);
}

function failOf({ name }: ByteSource): Fail {
  return (byteOffset, field, message) => {
    throw new FormatError({ source: name, byteOffset, field, message });
  };
}

async function openSource(
  source: ByteSource,
  mac: string | undefined,
  options: { signal?: AbortSignal },
): Promise<SessionFile> {
  const fail = failOf(source);
  const { jsonBytes, headerBytes, headerChecksum } = await readPreamble(source, fail, options);
  const bytes = new Uint8Array(headerBytes);
  await source.read(preambleBytes, bytes, options);
  const checksum = checksumOf(bytes, 0);
  if (checksum.some((word, i) => word !== headerChecksum[i])) {
    fail(16, 'header checksum', 'the header is damaged');
  }
  const header = parseHeader(bytes.subarray(0, jsonBytes), (field, message) => fail(preambleBytes, field, message));
  const sections = locateSections(header, preambleBytes + headerBytes, source.sizeBytes, fail);
  return new StoredSession({ source, header, sections, checksum, mac });
}

/** Checks magic, version and sizes. */
async function readPreamble(
  source: ByteSource,
  fail: Fail,
  options: { signal?: AbortSignal },
): Promise<{ jsonBytes: number; headerBytes: number; headerChecksum: Uint32Array }> {
  if (source.sizeBytes < preambleBytes) {
    fail(0, 'preamble', `unexpected end, expected ${preambleBytes} bytes, got ${source.sizeBytes}`);
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
    fail(24, 'file size', `expected ${fileBytes} bytes, got ${source.sizeBytes}: the file was truncated or has grown`);
  }
  if (preambleBytes + headerBytes > fileBytes) {
    fail(12, 'header size', `expected at most ${fileBytes - preambleBytes}, got ${headerBytes}`);
  }
  return { jsonBytes, headerBytes, headerChecksum: words.slice(4, 6) };
}

/** The offset of each section; together they fill the file. */
function locateSections(
  { sections, chunkBytes }: SessionHeader,
  firstOffset: number,
  fileBytes: number,
  fail: Fail,
): ReadonlyMap<string, StoredSection> {
  const located = new Map<string, StoredSection>();
  let fileOffset = firstOffset;
  for (const [index, { name, sizeBytes }] of sections.entries()) {
    if (located.has(name)) fail(preambleBytes, 'sections', `"${name}" appears twice`);
    located.set(name, { index, sizeBytes, fileOffset });
    fileOffset += storedBytes(sizeBytes, chunkBytes);
  }
  if (fileOffset !== fileBytes) fail(preambleBytes, 'sections', `they end at ${fileOffset}, the file at ${fileBytes}`);
  return located;
}

interface OpenedSession {
  readonly source: ByteSource;
  readonly header: SessionHeader;
  readonly sections: ReadonlyMap<string, StoredSection>;
  /** Of the header. */
  readonly checksum: Uint32Array;
  readonly mac: string | undefined;
}

/** Reads sections through a buffer of one chunk. */
class StoredSession implements SessionFile {
  readonly mac: string | undefined;
  readonly modelHash: string;
  readonly options: SessionHeader['options'];
  readonly metadata: SessionHeader['metadata'];
  readonly chunkBytes: number;
  readonly sections: SessionHeader['sections'];
  readonly #source: ByteSource;
  readonly #located: ReadonlyMap<string, StoredSection>;
  readonly #headerChecksum: Uint32Array;
  readonly #buffer: Uint8Array<ArrayBuffer>;
  /** Section and index of the chunk in the buffer. */
  #buffered = '';
  readonly #turns = new Limiter(1);

  constructor({ source, header, sections, checksum, mac }: OpenedSession) {
    this.mac = mac;
    this.modelHash = header.modelHash;
    this.options = header.options;
    this.metadata = header.metadata;
    this.chunkBytes = header.chunkBytes;
    this.sections = header.sections;
    this.#source = source;
    this.#located = sections;
    this.#headerChecksum = checksum;
    this.#buffer = new Uint8Array(Math.min(header.chunkBytes + checksumBytes, source.sizeBytes));
  }

  /** Reads are serialized, since they share the buffer. */
  read(name: string, byteOffset: number, target: Uint8Array, options: { signal?: AbortSignal } = {}): Promise<void> {
    return this.#turns.run(() => this.#readRange(name, byteOffset, target, options));
  }

  async readAll(name: string, options?: { signal?: AbortSignal }): Promise<Uint8Array<ArrayBuffer>> {
    const target = new Uint8Array(this.#located.get(name)?.sizeBytes ?? 0);
    await this.read(name, 0, target, options);
    return target;
  }

  async verify(options?: { signal?: AbortSignal }): Promise<void> {
    const piece = new Uint8Array(Math.min(this.chunkBytes, this.#source.sizeBytes));
    for (const { name, sizeBytes } of this.sections) {
      for (let position = 0; position < sizeBytes; position += this.chunkBytes) {
        const numBytes = Math.min(this.chunkBytes, sizeBytes - position);
        await this.read(name, position, piece.subarray(0, numBytes), options);
      }
    }
  }

  async #readRange(
    name: string,
    byteOffset: number,
    target: Uint8Array,
    options: { signal?: AbortSignal },
  ): Promise<void> {
    const section = this.#located.get(name);
    if (section === undefined) {
      throw new ArgumentError({ argument: 'section', expected: [...this.#located.keys()].join(' | '), actual: name });
    }
    const end = byteOffset + target.byteLength;
    if (!Number.isSafeInteger(byteOffset) || byteOffset < 0 || end > section.sizeBytes) {
      const expected = `a range within [0, ${section.sizeBytes})`;
      throw new ArgumentError({ argument: `range of section "${name}"`, expected, actual: `[${byteOffset}, ${end})` });
    }
    for (let position = byteOffset; position < end;) {
      const chunk = Math.floor(position / this.chunkBytes);
      const bytes = await this.#readChunk(name, section, chunk, options);
      const begin = position - chunk * this.chunkBytes;
      const count = Math.min(bytes.byteLength - begin, end - position);
      target.set(bytes.subarray(begin, begin + count), position - byteOffset);
      position += count;
    }
  }

  /** A verified chunk, as a view of the buffer. */
  async #readChunk(
    name: string,
    { index, sizeBytes, fileOffset }: StoredSection,
    chunk: number,
    options: { signal?: AbortSignal },
  ): Promise<Uint8Array> {
    const { chunkBytes } = this;
    const buffer = this.#buffer;
    const length = Math.min(chunkBytes, sizeBytes - chunk * chunkBytes);
    const key = `${index}:${chunk}`;
    if (this.#buffered === key) return buffer.subarray(0, length);
    this.#buffered = '';
    const byteOffset = fileOffset + chunk * (chunkBytes + checksumBytes);
    await this.#source.read(byteOffset, buffer.subarray(0, length + checksumBytes), options);
    const checksum = checksumOf(buffer.subarray(0, length), chunkSeed(this.#headerChecksum, index, chunk));
    const stored = buffer.subarray(length);
    if (new Uint8Array(checksum.buffer).some((byte, i) => stored[i] !== byte)) {
      const message = `bytes ${chunk * chunkBytes} to ${chunk * chunkBytes + length} are damaged`;
      throw new FormatError({ source: this.#source.name, byteOffset, field: `section "${name}"`, message });
    }
    this.#buffered = key;
    return buffer.subarray(0, length);
  }
}

/**
 * Checks that a session belongs to a model and its options.
 * @throws {FormatError} naming the first difference
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
  const depth = jsonDepth(json);
  if (depth > maxJsonDepth) fail('header', `expected at most ${maxJsonDepth} levels of brackets, got ${depth}`);
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(json));
  } catch (error) {
    fail('header', error instanceof Error ? error.message : String(error));
  }
  if (!isRecord(value)) return fail('header', 'expected an object');
  const { modelHash, options, metadata, chunkBytes, sections } = value;
  if (typeof modelHash !== 'string') return fail('modelHash', 'expected a string');
  if (!isRecord(options)) return fail('options', 'expected an object');
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
    if (!isRecord(section)) return fail('sections', 'expected objects');
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
