/** Parses the tensor infos of a header and checks them against each other and against the file. */
import { dtypeInfo, dtypeOfGgmlType, type DType } from '@winnow/tensor';
import type { HeaderReader } from './header-reader.js';

/** A tensor info, with the offset of its data still relative to the data section. */
export interface TensorInfo {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly number[]; // outermost first
  readonly relativeOffset: number;
  readonly sizeBytes: number;
  /** Position of the field `offset` in the header, for error messages. */
  readonly offsetField: number;
}

/** Name length, one byte of name, number of dimensions, type, offset. */
export const minTensorInfoBytes: number = 8 + 1 + 4 + 4 + 8;

export function tensorField(name: string): string {
  return `tensors[${JSON.stringify(name)}]`;
}

export async function parseTensorInfos(reader: HeaderReader, numTensors: number): Promise<TensorInfo[]> {
  const { cursor } = reader;
  const names = new Set<string>();
  const infos: TensorInfo[] = [];
  for (let index = 0; index < numTensors; index++) {
    const nameOffset = cursor.position;
    const name = await reader.string(`tensors[${index}].name`, 'maxTensorNameBytes');
    if (name === '') throw reader.error(`tensors[${index}].name`, 'expected a name, got an empty string', nameOffset);
    const field = tensorField(name);
    if (names.has(name)) throw reader.error(field, 'expected unique tensor names, got a duplicate', nameOffset);
    names.add(name);

    const numDimsOffset = cursor.position;
    const numDims = await reader.uint32(`${field}.numDims`);
    const { maxDims } = reader.limits;
    if (numDims > maxDims) {
      throw reader.error(`${field}.numDims`, `expected at most ${maxDims} (maxDims), got ${numDims}`, numDimsOffset);
    }
    await reader.ensure(numDims * 8 + 12, field);
    const dimsOffset = cursor.position;
    const dims: number[] = []; // innermost first, as in the file
    for (let axis = 0; axis < numDims; axis++) dims.push(cursor.size64(`${field}.dims[${axis}]`));

    const typeOffset = cursor.position;
    const ggmlType = cursor.uint32(`${field}.type`);
    const dtype = dtypeOfGgmlType(ggmlType);
    if (dtype === undefined) {
      throw reader.error(`${field}.type`, `expected a known ggml type, got number ${ggmlType}`, typeOffset);
    }
    const offsetField = cursor.position;
    const relativeOffset = cursor.size64(`${field}.offset`);
    infos.push({
      name,
      dtype,
      shape: dims.toReversed(),
      relativeOffset,
      sizeBytes: sizeOfTensor(reader, field, dims, dtype, dimsOffset),
      offsetField,
    });
  }
  return infos;
}

/** Bytes of a tensor with the dimensions `dims`, innermost first. */
function sizeOfTensor(
  reader: HeaderReader,
  field: string,
  dims: readonly number[],
  dtype: DType,
  dimsOffset: number,
): number {
  const { blockSize, blockBytes } = dtypeInfo(dtype);
  const rowLength = dims[0] ?? 1;
  if (rowLength % blockSize !== 0) {
    throw reader.error(
      `${field}.dims[0]`,
      `expected whole blocks of ${blockSize} values (${dtype}), got ${rowLength}`,
      dimsOffset,
    );
  }
  // Every factor is a safe integer, so an inexact product exceeds 2^53 - 1. Zeros are left out of the check of
  // the others: [0, 2^53 - 1, 2^53 - 1] is rejected, because other code may multiply in another order.
  let product = blockBytes;
  let isEmpty = false;
  for (const dim of dims) {
    if (dim === 0) isEmpty = true;
    else product *= dim;
  }
  if (!Number.isSafeInteger(product)) {
    const found = `[${dims.toReversed().join(', ')}]`;
    throw reader.error(`${field}.dims`, `expected at most 2^53 - 1 bytes, got the shape ${found}`, dimsOffset);
  }
  const sizeBytes = isEmpty ? 0 : product / blockSize;
  return sizeBytes;
}

/** Every tensor must be aligned, lie inside the file, and not overlap others. */
export function checkLayout(
  reader: HeaderReader,
  infos: readonly TensorInfo[],
  alignment: number,
  dataOffset: number,
  fileBytes: number,
): void {
  for (const { name, relativeOffset, sizeBytes, offsetField } of infos) {
    const field = `${tensorField(name)}.offset`;
    if (relativeOffset % alignment !== 0) {
      throw reader.error(
        field,
        `expected a multiple of the alignment ${alignment}, got ${relativeOffset}`,
        offsetField,
      );
    }
    const end = dataOffset + relativeOffset + sizeBytes;
    if (end > fileBytes) {
      throw reader.error(
        field,
        `expected data within the file, got bytes ${dataOffset + relativeOffset} to ${end} of ${fileBytes} (is the file truncated?)`,
        offsetField,
      );
    }
  }
  const sorted = infos.filter(({ sizeBytes }) => sizeBytes > 0).sort((a, b) => a.relativeOffset - b.relativeOffset);
  for (let index = 1; index < sorted.length; index++) {
    const before = sorted[index - 1] as TensorInfo;
    const { name, relativeOffset, offsetField } = sorted[index] as TensorInfo;
    const end = before.relativeOffset + before.sizeBytes;
    if (relativeOffset < end) {
      throw reader.error(
        `${tensorField(name)}.offset`,
        `expected data that does not overlap ${tensorField(before.name)}, which ends at ${end}, got ${relativeOffset}`,
        offsetField,
      );
    }
  }
}
