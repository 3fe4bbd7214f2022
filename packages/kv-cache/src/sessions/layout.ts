/** The layout of session files that writer and reader share: see docs/formats/session.md. */
import { checksum64 } from '../checksum.js';

/** "WNWSESS" and a zero byte. */
export const sessionMagic: readonly number[] = [0x57, 0x4e, 0x57, 0x53, 0x45, 0x53, 0x53, 0];
export const sessionVersion = 1;
/** Magic, version, header size, header checksum, file size. */
export const preambleBytes = 32;
export const checksumBytes = 8;

/** Far more than names of sections and options need. */
export const maxHeaderBytes: number = 16 * 1024 * 1024;
/** A model has a few sections per layer. */
export const maxSections = 65_536;
/** The reader keeps one chunk in memory. */
export const maxChunkBytes: number = 64 * 1024 * 1024;
export const minChunkBytes = 64;
export const defaultChunkBytes: number = 1024 * 1024;
export const maxNameLength = 200;

/** The last section of an authenticated file. */
export const macSectionName = 'mac';
export const macBytes = 32;
/** Bytes per digest that the MAC covers. */
export const macPieceBytes: number = 1024 * 1024;

/** Values of session options: JSON values that can be compared exactly. */
export type SessionOptionValue = string | number | boolean | null;

/** Values of JSON. */
export type JsonValue = SessionOptionValue | readonly JsonValue[] | { readonly [key: string]: JsonValue };

export interface SessionHeader {
  /** Identifies the weights that the contents were computed with. */
  readonly modelHash: string;
  /** Everything else that must match before a session is resumed: dtypes, block size, attention policy. */
  readonly options: Readonly<Record<string, SessionOptionValue>>;
  /** Data of the engine besides the sections. */
  readonly metadata: JsonValue;
  readonly chunkBytes: number;
  readonly sections: readonly { readonly name: string; readonly sizeBytes: number }[];
}

/** Bytes of a section in the file: its chunks, each followed by a checksum. */
export function storedBytes(sizeBytes: number, chunkBytes: number): number {
  return sizeBytes + checksumBytes * Math.ceil(sizeBytes / chunkBytes);
}

/** Bytes of the header with the zeros that fill it up to a multiple of 8. */
export function paddedBytes(headerBytes: number): number {
  return Math.ceil(headerBytes / 8) * 8;
}

/** The seed ties a chunk to its file and its position in it. */
export function chunkSeed(headerChecksum: Uint32Array, sectionIndex: number, chunkIndex: number): number {
  return (headerChecksum[0] ^ Math.imul(sectionIndex + 1, 0x9e3779b1) ^ Math.imul(chunkIndex + 1, 0x85ebca77)) | 0;
}

export function checksumOf(bytes: Uint8Array, seed: number): Uint32Array {
  const sum = new Uint32Array(2);
  checksum64(bytes, seed, sum);
  return sum;
}
