/** Writes a session file: named sections of bytes, chunk by chunk, with one chunk in memory. */
import type { ByteSink } from '@winnow/bytes';
import { ArgumentError, jsonDepth, maxJsonDepth } from '@winnow/tensor';
import { SessionMac } from './authentication.js';
import {
  checksumBytes,
  checksumOf,
  chunkSeed,
  defaultChunkBytes,
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
  type JsonValue,
  type SessionHeader,
  type SessionOptionValue,
} from './layout.js';

/** A section to write. */
export interface SessionSection {
  /** At most 200 characters, unique in the file. */
  readonly name: string;
  readonly sizeBytes: number;
  /** Fills `target` with the section's bytes from `byteOffset` on; called once per chunk, in order. */
  read(byteOffset: number, target: Uint8Array): void | Promise<void>;
}

export interface SessionContents {
  readonly modelHash: string;
  readonly options: Readonly<Record<string, SessionOptionValue>>;
  readonly metadata?: JsonValue;
  readonly sections: readonly SessionSection[];
}

export interface WriteSessionOptions {
  /** Bytes per checksum. Default 1 MiB. */
  readonly chunkBytes?: number;
  /** Appends a MAC with this secret key of at least 16 bytes (HMAC-SHA-256), which `openSession` verifies. Default: none. */
  readonly key?: Uint8Array;
  readonly signal?: AbortSignal;
}

/** A section of the bytes of an array, which must not change until the session is written. */
export function bytesSection(name: string, bytes: ArrayBufferView): SessionSection {
  const view = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return {
    name,
    sizeBytes: view.byteLength,
    read: (byteOffset, target) => target.set(view.subarray(byteOffset, byteOffset + target.byteLength)),
  };
}

/**
 * Writes a session and closes the sink: with an atomic sink, the file appears complete or not at all. On failure the
 * sink is aborted.
 * @returns size of the file in bytes
 * @throws {ArgumentError} for invalid names and sizes; {IoError} when writing fails; errors of sections
 */
export async function writeSession(
  sink: ByteSink,
  contents: SessionContents,
  { chunkBytes = defaultChunkBytes, key, signal }: WriteSessionOptions = {},
): Promise<number> {
  try {
    const mac = key === undefined ? undefined : await SessionMac.create(key);
    const sections = mac === undefined ? contents.sections : [...contents.sections, mac.section];
    const write = async (bytes: Uint8Array): Promise<void> => {
      await mac?.update(bytes);
      await sink.write(bytes);
    };
    const header = encodeHeader({ ...contents, sections }, chunkBytes);
    const headerChecksum = checksumOf(header.bytes, 0);
    await write(encodePreamble(header.jsonBytes, header.fileBytes, headerChecksum));
    await write(header.bytes);
    for (const [index, { sizeBytes, read }] of sections.entries()) {
      const stored = new Uint8Array(Math.min(chunkBytes, sizeBytes) + checksumBytes);
      for (let byteOffset = 0; byteOffset < sizeBytes; byteOffset += chunkBytes) {
        signal?.throwIfAborted();
        const length = Math.min(chunkBytes, sizeBytes - byteOffset);
        const chunk = stored.subarray(0, length);
        await read(byteOffset, chunk);
        const sum = checksumOf(chunk, chunkSeed(headerChecksum, index, byteOffset / chunkBytes));
        stored.set(new Uint8Array(sum.buffer), length);
        await write(stored.subarray(0, length + checksumBytes));
      }
    }
    signal?.throwIfAborted();
    await sink.close();
    return header.fileBytes;
  } catch (error) {
    await sink.abort();
    throw error;
  }
}

function encodePreamble(jsonBytes: number, fileBytes: number, headerChecksum: Uint32Array): Uint8Array {
  const preamble = new Uint8Array(preambleBytes);
  preamble.set(sessionMagic);
  const words = new Uint32Array(preamble.buffer);
  words[2] = sessionVersion;
  words[3] = jsonBytes;
  words.set(headerChecksum, 4);
  words[6] = fileBytes >>> 0;
  words[7] = fileBytes / 2 ** 32;
  return preamble;
}

function encodeHeader(
  { modelHash, options, metadata = null, sections }: SessionContents,
  chunkBytes: number,
): { bytes: Uint8Array; jsonBytes: number; fileBytes: number } {
  const refuse = (argument: string, expected: string, actual: unknown): never => {
    throw new ArgumentError({ argument, expected, actual: String(actual) });
  };
  if (!Number.isSafeInteger(chunkBytes) || chunkBytes < minChunkBytes || chunkBytes > maxChunkBytes) {
    refuse('chunkBytes', `an integer from ${minChunkBytes} to ${maxChunkBytes}`, chunkBytes);
  }
  if (sections.length > maxSections) refuse('sections', `at most ${maxSections}`, sections.length);
  const names = new Set<string>();
  for (const { name, sizeBytes } of sections) {
    if (name.length === 0 || name.length > maxNameLength) {
      refuse('section name', `1 to ${maxNameLength} characters`, `${name.length}`);
    }
    if (names.has(name)) refuse('section name', 'distinct names', `"${name}" twice`);
    names.add(name);
    if (!Number.isSafeInteger(sizeBytes) || sizeBytes < 0) {
      refuse(`size of section "${name}"`, 'a non-negative integer', sizeBytes);
    }
  }
  for (const [name, value] of Object.entries(options)) {
    if (typeof value === 'number' && !Number.isFinite(value)) refuse(`option ${name}`, 'a finite number', value);
  }
  const header: SessionHeader = {
    modelHash,
    options,
    metadata,
    chunkBytes,
    sections: sections.map(({ name, sizeBytes }) => ({ name, sizeBytes })),
  };
  const json = new TextEncoder().encode(jsonOf(header));
  const depth = jsonDepth(json);
  if (depth > maxJsonDepth) refuse('metadata', `a header of at most ${maxJsonDepth} levels`, depth);
  if (json.byteLength > maxHeaderBytes)
    refuse('metadata', `a header of at most ${maxHeaderBytes} bytes`, json.byteLength);
  const bytes = new Uint8Array(paddedBytes(json.byteLength));
  bytes.set(json);
  let fileBytes = preambleBytes + bytes.byteLength;
  for (const { sizeBytes } of sections) fileBytes += storedBytes(sizeBytes, chunkBytes);
  return { bytes, jsonBytes: json.byteLength, fileBytes };
}

/** @throws {ArgumentError} for metadata without JSON, or nested so deeply that writing it exhausts the stack */
function jsonOf(header: SessionHeader): string {
  try {
    return JSON.stringify(header);
  } catch (cause) {
    const expected = `JSON of at most ${maxJsonDepth} levels`;
    throw new ArgumentError({
      argument: 'metadata',
      expected,
      actual: cause instanceof Error ? cause.message : String(cause),
    });
  }
}
