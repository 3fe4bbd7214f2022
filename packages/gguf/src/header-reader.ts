/** The cursor over a GGUF header, which enforces `GgufLimits` on every size that the file claims. */
import { ByteCursor, type ByteSource } from '@winnow/bytes';
import { FormatError } from '@winnow/tensor';
import type { GgufLimits } from './limits.js';
import { ggufTypes, minValueBytes, type GgufType } from './value-types.js';

export class HeaderReader {
  readonly cursor: ByteCursor;
  readonly limits: GgufLimits;
  readonly sourceName: string;
  /** What ends at the end of `cursor`, for error messages. */
  readonly #end: string;
  /** Arrays inside arrays seen so far. */
  numNestedArrays = 0;
  readonly #decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

  constructor(source: ByteSource, limits: GgufLimits, signal: AbortSignal | undefined) {
    this.cursor = new ByteCursor(source, {
      endOffset: limits.maxHeaderBytes,
      ...(signal === undefined ? {} : { signal }),
    });
    this.#end =
      limits.maxHeaderBytes < source.sizeBytes ? `the ${limits.maxHeaderBytes} bytes of maxHeaderBytes` : 'the file';
    this.limits = limits;
    this.sourceName = source.name;
  }

  error(field: string, message: string, byteOffset: number = this.cursor.position): FormatError {
    return new FormatError({ source: this.sourceName, byteOffset, field, message });
  }

  /** Ensures that the getters of `cursor` can read `numBytes` more bytes. */
  async ensure(numBytes: number, field: string): Promise<void> {
    if (this.cursor.bufferedBytes >= numBytes) return;
    const { remainingBytes } = this.cursor;
    if (numBytes > remainingBytes) {
      throw this.error(field, `expected ${numBytes} more bytes, got ${remainingBytes} up to the end of ${this.#end}`);
    }
    await this.cursor.ensure(numBytes, field);
  }

  async uint32(field: string): Promise<number> {
    if (this.cursor.bufferedBytes < 4) await this.ensure(4, field);
    return this.cursor.uint32(field);
  }

  async size64(field: string): Promise<number> {
    if (this.cursor.bufferedBytes < 8) await this.ensure(8, field);
    return this.cursor.size64(field);
  }

  /** Reads a count of items of at least `minBytes` bytes each, which must fit in the rest of the file. */
  async count(field: string, minBytes: number, limitName: keyof GgufLimits): Promise<number> {
    const byteOffset = this.cursor.position;
    const count = await this.size64(field);
    const limit = this.limits[limitName];
    if (count > limit) throw this.error(field, `expected at most ${limit} (${limitName}), got ${count}`, byteOffset);
    const available = this.cursor.remainingBytes;
    if (count * minBytes > available) {
      throw this.error(
        field,
        `expected a count that fits in ${this.#end}, got ${count}, at least ${count * minBytes} bytes of ${available} left`,
        byteOffset,
      );
    }
    return count;
  }

  /** Reads a length-prefixed string. */
  async string(field: string, limitName: keyof GgufLimits = 'maxStringBytes'): Promise<string> {
    const { cursor } = this;
    const byteOffset = cursor.position;
    const numBytes = await this.size64(field);
    if (cursor.bufferedBytes < numBytes || numBytes > this.limits[limitName]) {
      const limit = this.limits[limitName];
      if (numBytes > limit) {
        throw this.error(field, `expected at most ${limit} bytes (${limitName}), got ${numBytes}`, byteOffset);
      }
      if (numBytes > cursor.remainingBytes) {
        throw this.error(
          field,
          `expected a length that fits in ${this.#end}, got ${numBytes} of ${cursor.remainingBytes} bytes left`,
          byteOffset,
        );
      }
      await this.ensure(numBytes, field);
    }
    const bytes = cursor.bytes(numBytes, field);
    try {
      return this.#decoder.decode(bytes);
    } catch {
      throw this.error(field, 'expected UTF-8 text, got invalid bytes', byteOffset);
    }
  }

  async type(field: string): Promise<GgufType> {
    const byteOffset = this.cursor.position;
    const number = await this.uint32(field);
    const type = ggufTypes[number];
    if (type === undefined) {
      throw this.error(field, `unknown value type, expected 0 to ${ggufTypes.length - 1}, got ${number}`, byteOffset);
    }
    return type;
  }

  /** The number of elements of an array whose type was just read. */
  arrayLength(field: string, elementType: GgufType): Promise<number> {
    return this.count(field, minValueBytes[elementType], 'maxArrayLength');
  }
}
