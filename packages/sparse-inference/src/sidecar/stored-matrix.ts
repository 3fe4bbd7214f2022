/** Matrices of predictors: q8_0 blocks in memory, codes and scales apart in files, where other programs can read them. */
import { decode, encode, sizeOf, type DType, type Shape } from '@winnow/tensor';
import type { StoredMatrix } from './sidecar.js';

const blockSize = 32;
const blockBytes = 34; // an f16 scale, 32 codes of 8 bits

/** Encodes the rows of a matrix: q8_0 when they are whole blocks, else f16. */
export function encodeMatrix(values: Float32Array, numRows: number, numColumns: number): StoredMatrix {
  const dtype = numColumns % blockSize === 0 ? 'q8_0' : 'f16';
  const bytes = new Uint8Array(sizeOf(dtype, values.length));
  encode(dtype, values, bytes);
  return { numRows, numColumns, dtype, bytes };
}

export function decodeMatrix({ numRows, numColumns, dtype, bytes }: StoredMatrix): Float32Array {
  const values = new Float32Array(numRows * numColumns);
  decode(dtype, bytes, values);
  return values;
}

/** A tensor of a file. */
export interface SidecarTensor {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: Shape;
  readonly data: Uint8Array;
}

/** `name.codes` i8 `[rows, columns]` and `name.scales` f16 `[rows, columns / 32]`, or `name` f16. */
export function matrixTensors(name: string, { numRows, numColumns, dtype, bytes }: StoredMatrix): SidecarTensor[] {
  if (dtype === 'f16') return [{ name, dtype, shape: [numRows, numColumns], data: bytes }];
  const numBlocks = bytes.length / blockBytes;
  const scales = new Uint8Array(numBlocks * 2);
  const codes = new Uint8Array(numBlocks * blockSize);
  for (let block = 0; block < numBlocks; block++) {
    const at = block * blockBytes;
    scales.set(bytes.subarray(at, at + 2), block * 2);
    codes.set(bytes.subarray(at + 2, at + blockBytes), block * blockSize);
  }
  return [
    { name: `${name}.codes`, dtype: 'i8', shape: [numRows, numColumns], data: codes },
    { name: `${name}.scales`, dtype: 'f16', shape: [numRows, numColumns / blockSize], data: scales },
  ];
}

/**
 * The matrix behind the tensors of a file.
 * @param read gives the bytes of a tensor, checked to be of this dtype and shape
 */
export async function readMatrix(
  name: string,
  numRows: number,
  numColumns: number,
  read: (name: string, dtype: DType, shape: Shape) => Promise<Uint8Array>,
): Promise<StoredMatrix> {
  if (numColumns % blockSize !== 0) {
    return { numRows, numColumns, dtype: 'f16', bytes: await read(name, 'f16', [numRows, numColumns]) };
  }
  const codes = await read(`${name}.codes`, 'i8', [numRows, numColumns]);
  const scales = await read(`${name}.scales`, 'f16', [numRows, numColumns / blockSize]);
  const numBlocks = codes.length / blockSize;
  const bytes = new Uint8Array(numBlocks * blockBytes);
  for (let block = 0; block < numBlocks; block++) {
    const at = block * blockBytes;
    bytes.set(scales.subarray(block * 2, block * 2 + 2), at);
    bytes.set(codes.subarray(block * blockSize, (block + 1) * blockSize), at + 2);
  }
  return { numRows, numColumns, dtype: 'q8_0', bytes };
}
