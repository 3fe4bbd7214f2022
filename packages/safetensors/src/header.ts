/**
 * Parses and checks the header of one file. After `parseHeader` returns, every tensor is known to lie inside the data
 * section, to have exactly the bytes its dtype and shape need, and to be contiguous with its neighbors.
 */
import type { Shape } from '@winnow/tensor';
import { fileDTypeNames, fileDTypeOf, type FileDType } from './dtypes.js';
import { JsonCursor, shown } from './json-cursor.js';
import { MAX_DIMS, MAX_METADATA_ENTRIES, MAX_TENSORS } from './limits.js';

/** One tensor of the header; `begin` and `end` are offsets in the file. */
export interface HeaderEntry {
  readonly name: string;
  readonly type: FileDType;
  readonly shape: Shape;
  readonly begin: number;
  readonly end: number;
}

/** A checked header. */
export interface Header {
  readonly metadata: ReadonlyMap<string, string>;
  /** In the order of the data. */
  readonly entries: readonly HeaderEntry[];
}

interface RawEntry extends HeaderEntry {
  /** Offset of `data_offsets` in the file, for error messages. */
  readonly fieldOffset: number;
}

/**
 * Reads the JSON header in `bytes`, which start at byte 8 of a file of `fileBytes` bytes.
 * @throws {FormatError}
 */
export function parseHeader(bytes: Uint8Array, source: string, fileBytes: number): Header {
  const cursor = new JsonCursor(bytes, source, 8);
  const dataStart = 8 + bytes.length;
  if (bytes[0] !== 0x7b) cursor.fail('header', `expected "{" as first byte, found ${describeByte(bytes[0])}`, 8);
  const entries: RawEntry[] = [];
  let metadata: ReadonlyMap<string, string> = new Map();
  cursor.readObject('header', (key, keyOffset) => {
    if (key === '__metadata__') {
      metadata = readMetadata(cursor);
      return;
    }
    if (entries.length === MAX_TENSORS) cursor.fail('header', `more than ${MAX_TENSORS} tensors`, keyOffset);
    entries.push(readEntry(cursor, key, keyOffset, dataStart));
  });
  cursor.expectEnd('header');
  checkLayout(cursor, entries, dataStart, fileBytes);
  return { metadata, entries };
}

function readMetadata(cursor: JsonCursor): Map<string, string> {
  const metadata = new Map<string, string>();
  if (cursor.tryNull()) return metadata;
  cursor.readObject('__metadata__', (key, keyOffset) => {
    if (metadata.size === MAX_METADATA_ENTRIES) {
      cursor.fail('__metadata__', `more than ${MAX_METADATA_ENTRIES} entries`, keyOffset);
    }
    metadata.set(key, cursor.readString(`__metadata__.${key}`));
  });
  return metadata;
}

function readEntry(cursor: JsonCursor, name: string, nameOffset: number, dataStart: number): RawEntry {
  let type: FileDType | undefined;
  let shape: number[] | undefined;
  let shapeOffset = nameOffset;
  let offsets: [number, number] | undefined;
  let fieldOffset = nameOffset;
  cursor.readObject(name, (key) => {
    cursor.peek();
    if (key === 'dtype') type = readDType(cursor, name);
    else if (key === 'shape') {
      shapeOffset = cursor.byteOffset;
      shape = readIntegers(cursor, `${name}.shape`, MAX_DIMS);
    } else if (key === 'data_offsets') {
      fieldOffset = cursor.byteOffset;
      const values = readIntegers(cursor, `${name}.data_offsets`, 2);
      if (values.length !== 2) {
        cursor.fail(`${name}.data_offsets`, `expected [begin, end], found ${values.length} numbers`, fieldOffset);
      }
      offsets = values as [number, number];
    } else cursor.skipValue(`${name}.${key}`);
  });
  if (type === undefined) cursor.fail(`${name}.dtype`, 'missing', nameOffset);
  if (shape === undefined) cursor.fail(`${name}.shape`, 'missing', nameOffset);
  if (offsets === undefined) cursor.fail(`${name}.data_offsets`, 'missing', nameOffset);
  const [begin, end] = offsets;
  if (begin > end) cursor.fail(`${name}.data_offsets`, `expected begin <= end, found [${begin}, ${end}]`, fieldOffset);
  const sizeBytes = entryBytes(cursor, name, type, shape, shapeOffset);
  if (sizeBytes !== end - begin) {
    cursor.fail(
      `${name}.data_offsets`,
      `${type.name} [${shape.join(', ')}] takes ${sizeBytes} bytes, but [${begin}, ${end}] are ${end - begin}`,
      fieldOffset,
    );
  }
  if (!Number.isSafeInteger(dataStart + end)) {
    cursor.fail(`${name}.data_offsets`, 'expected an end below 2^53', fieldOffset);
  }
  return { name, type, shape, begin: dataStart + begin, end: dataStart + end, fieldOffset };
}

function readDType(cursor: JsonCursor, name: string): FileDType {
  const offset = cursor.byteOffset;
  const text = cursor.readString(`${name}.dtype`);
  const type = fileDTypeOf(text);
  if (type === undefined) {
    cursor.fail(`${name}.dtype`, `expected ${fileDTypeNames.join(' | ')}, found "${shown(text)}"`, offset);
  }
  return type;
}

function readIntegers(cursor: JsonCursor, field: string, maxLength: number): number[] {
  const values: number[] = [];
  cursor.readArray(field, (index) => {
    if (index === maxLength) cursor.fail(field, `more than ${maxLength} numbers`);
    values.push(cursor.readNonNegativeInteger(field));
  });
  return values;
}

function entryBytes(cursor: JsonCursor, name: string, type: FileDType, shape: Shape, shapeOffset: number): number {
  const isWholeBytes = type.bits % 8 === 0;
  let size = isWholeBytes ? type.bits / 8 : type.bits; // in bytes, or in bits
  for (const dim of shape) {
    size *= dim;
    if (!Number.isSafeInteger(size)) {
      cursor.fail(`${name}.shape`, `[${shape.join(', ')}] of ${type.name} takes more than 2^53 - 1 bytes`, shapeOffset);
    }
  }
  if (isWholeBytes) return size;
  if (size % 8 !== 0) {
    cursor.fail(`${name}.shape`, `[${shape.join(', ')}] of ${type.name} is not a whole number of bytes`, shapeOffset);
  }
  return size / 8;
}

/** Sorts by position and checks that the tensors cover the data section exactly. */
function checkLayout(cursor: JsonCursor, entries: RawEntry[], dataStart: number, fileBytes: number): void {
  entries.sort((a, b) => a.begin - b.begin || a.end - b.end);
  let position = dataStart;
  let previous = 'the start of the data';
  const total = entries.reduce((end, entry) => Math.max(end, entry.end), dataStart);
  for (const { name, begin, end, fieldOffset } of entries) {
    const field = `${name}.data_offsets`;
    const range = `[${begin - dataStart}, ${end - dataStart}]`;
    if (begin < position) cursor.fail(field, `${range} overlaps ${previous}`, fieldOffset);
    if (begin > position) {
      cursor.fail(field, `${range} leaves a gap of ${begin - position} bytes after ${previous}`, fieldOffset);
    }
    if (end > fileBytes) {
      cursor.fail(
        field,
        `${range} reaches beyond the end: the header describes ${total - dataStart} bytes of data, the file has ` +
          `${fileBytes - dataStart} (truncated: ${total - fileBytes} bytes are missing)`,
        fieldOffset,
      );
    }
    position = end;
    previous = `"${shown(name)}"`;
  }
  if (position !== fileBytes) {
    cursor.fail(
      'data',
      `expected the end of the file after ${previous}, found ${fileBytes - position} bytes`,
      position,
    );
  }
}

function describeByte(byte: number | undefined): string {
  return byte === undefined ? 'an empty header' : `0x${byte.toString(16).padStart(2, '0')}`;
}
