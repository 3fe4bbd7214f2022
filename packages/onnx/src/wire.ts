/**
 * Scans the outer levels of a protobuf file: the byte range of each field, without reading long ones. Small messages
 * are then decoded by `@bufbuild/protobuf`. Encoding: https://protobuf.dev/programming-guides/encoding/
 */
import { ByteCursor, type ByteSource } from '@winnow/bytes';
import { BinaryReader, type WireType } from '@bufbuild/protobuf/wire';
import { FormatError } from '@winnow/tensor';

/** A field of a message: a number, or the range of its bytes. */
export interface WireField {
  readonly number: number;
  /** 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes. */
  readonly wireType: number;
  /** Value of a varint. */
  readonly value: number;
  /** Range of the contents in the file. */
  readonly begin: number;
  readonly end: number;
}

const maxVarintBytes = 10;

export function wireError(source: string, byteOffset: number, field: string, message: string): FormatError {
  return new FormatError({ source, byteOffset, field, message });
}

/** The fields of the message in `[begin, end)`. @throws {FormatError} for an invalid range or tag */
export async function* wireFields(
  source: ByteSource,
  begin: number,
  end: number,
  what: string,
  signal?: AbortSignal,
): AsyncGenerator<WireField> {
  let at = begin;
  let cursor: ByteCursor | undefined;
  while (at < end) {
    // a skipped range is not read
    if (cursor === undefined || cursor.position > at || at - cursor.position > cursor.bufferedBytes) {
      cursor = new ByteCursor(source, {
        byteOffset: at,
        endOffset: end,
        firstChunkBytes: 4096,
        ...(signal === undefined ? {} : { signal }),
      });
    } else cursor.skip(at - cursor.position, what);
    const open = cursor;
    const varint = async (): Promise<number> => {
      const start = open.position;
      await open.ensure(Math.min(maxVarintBytes, end - start), what);
      let value = 0;
      for (let index = 0; index < maxVarintBytes; index++) {
        if (open.position >= end) throw wireError(source.name, start, what, 'a varint extends beyond the message');
        const byte = open.uint8(what);
        value += (byte & 0x7f) * 2 ** (7 * index);
        if (byte < 0x80) return value;
      }
      throw wireError(source.name, start, what, 'a varint has more than 10 bytes');
    };
    const tag = await varint();
    const [number, wireType] = [Math.floor(tag / 8), tag % 8];
    if (number < 1 || number > 0x1fff_ffff) {
      throw wireError(source.name, at, what, `expected a field number, got ${number}`);
    }
    let value = 0;
    let length = wireType === 1 ? 8 : wireType === 5 ? 4 : 0;
    if (wireType === 0) value = await varint();
    else if (wireType === 2) length = await varint();
    else if (wireType !== 1 && wireType !== 5) {
      throw wireError(source.name, at, what, `expected wire type 0, 1, 2 or 5, got ${wireType}`);
    }
    const contents = open.position;
    if (length > end - contents) {
      throw wireError(
        source.name,
        at,
        `${what}, field ${number}`,
        `${length} bytes, but only ${end - contents} are left`,
      );
    }
    yield { number, wireType, value, begin: contents, end: contents + length };
    at = contents + length;
  }
}

/** Decodes a small message; an error of the library becomes a `FormatError` at `byteOffset`. */
export function decodeMessage(
  source: string,
  byteOffset: number,
  what: string,
  bytes: Uint8Array,
  onField: (number: number, reader: BinaryReader, wireType: WireType) => boolean,
): void {
  try {
    const reader = new BinaryReader(bytes);
    while (reader.pos < reader.len) {
      const [number, wireType] = reader.tag();
      if (!onField(number, reader, wireType)) reader.skip(wireType, number);
    }
  } catch (cause) {
    if (cause instanceof FormatError) throw cause;
    const message = cause instanceof Error ? cause.message : String(cause);
    throw new FormatError({ source, byteOffset, field: what, message: `malformed message: ${message}` }, { cause });
  }
}
