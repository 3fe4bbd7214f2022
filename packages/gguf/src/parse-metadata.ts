/** Parses the metadata pairs of a header. */
import type { HeaderReader } from './header-reader.js';
import { metadataField, type GgufMetadataEntry } from './metadata.js';
import {
  isNumberType,
  minValueBytes,
  typedArrayOf,
  type GgufArray,
  type GgufNumberType,
  type GgufTypedValue,
} from './value-types.js';

export async function parseMetadata(reader: HeaderReader, numPairs: number): Promise<Map<string, GgufMetadataEntry>> {
  const entries = new Map<string, GgufMetadataEntry>();
  for (let index = 0; index < numPairs; index++) {
    const keyOffset = reader.cursor.position;
    const key = await reader.string(`metadata[${index}].key`, 'maxKeyBytes');
    if (key === '') throw reader.error(`metadata[${index}].key`, 'expected a name, got an empty string', keyOffset);
    const field = metadataField(key);
    if (entries.has(key)) throw reader.error(field, 'expected unique keys, got a duplicate', keyOffset);
    const type = await reader.type(`${field}.type`);
    const byteOffset = reader.cursor.position;
    let value: GgufTypedValue;
    if (type === 'array') value = await parseArray(reader, field, 1);
    else if (type === 'string') value = { type, value: await reader.string(field) };
    else {
      await reader.ensure(minValueBytes[type], field);
      if (type === 'bool') value = { type, value: boolean(reader, field) };
      else if (type === 'uint64' || type === 'int64') value = { type, value: integer64(reader, type, field) };
      else value = { type, value: number(reader, type, field) };
    }
    entries.set(key, { value, byteOffset });
  }
  return entries;
}

function number({ cursor }: HeaderReader, type: GgufNumberType, field: string): number {
  return cursor[type](field);
}

/** As a JavaScript number where that is exact. */
function integer64({ cursor }: HeaderReader, type: 'uint64' | 'int64', field: string): number | bigint {
  const exact = cursor[type](field);
  const rounded = Number(exact);
  return Number.isSafeInteger(rounded) ? rounded : exact;
}

function boolean(reader: HeaderReader, field: string): boolean {
  const byteOffset = reader.cursor.position;
  const byte = reader.cursor.uint8(field);
  if (byte > 1) throw reader.error(field, `expected a boolean (0 or 1), got ${byte}`, byteOffset);
  return byte === 1;
}

async function parseArray(reader: HeaderReader, field: string, depth: number): Promise<GgufArray> {
  const elementType = await reader.type(`${field}.elementType`);
  const lengthOffset = reader.cursor.position;
  const length = await reader.arrayLength(`${field}.length`, elementType);
  if (isNumberType(elementType)) {
    const numBytes = length * minValueBytes[elementType];
    await reader.ensure(numBytes, field);
    return { type: 'array', elementType, value: typedArrayOf(elementType, reader.cursor.bytes(numBytes, field)) };
  }
  if (elementType === 'array') {
    if (depth >= reader.limits.maxArrayNesting) {
      const limit = reader.limits.maxArrayNesting;
      throw reader.error(field, `expected at most ${limit} levels of arrays (maxArrayNesting)`, lengthOffset);
    }
    reader.numNestedArrays += length;
    if (reader.numNestedArrays > reader.limits.maxNestedArrays) {
      const limit = reader.limits.maxNestedArrays;
      throw reader.error(field, `expected at most ${limit} arrays inside arrays (maxNestedArrays)`, lengthOffset);
    }
    const value: GgufArray[] = [];
    for (let index = 0; index < length; index++) value.push(await parseArray(reader, `${field}[${index}]`, depth + 1));
    return { type: 'array', elementType, value };
  }
  if (elementType === 'string') {
    const value: string[] = [];
    for (let index = 0; index < length; index++) value.push(await reader.string(field));
    return { type: 'array', elementType, value };
  }
  await reader.ensure(length * minValueBytes[elementType], field);
  if (elementType === 'bool') {
    const value: boolean[] = [];
    for (let index = 0; index < length; index++) value.push(boolean(reader, field));
    return { type: 'array', elementType, value };
  }
  const value: (number | bigint)[] = [];
  for (let index = 0; index < length; index++) value.push(integer64(reader, elementType, field));
  return { type: 'array', elementType, value };
}
