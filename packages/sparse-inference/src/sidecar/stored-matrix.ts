/**
 * Matrices of predictors: q8_0 or q4_0 blocks in memory; separate codes and scales in files, which other programs can
 * read.
 */
import { decode, encode, sizeOf, type DType, type Shape } from '@winnow/tensor';
import type { StoredMatrix } from './sidecar.js';

const blockSize = 32;
const scaleBytes = 2;
/** By dtype: name of the tensor of codes, and bytes of the codes of a block. */
const codes = { q8_0: ['codes', 32], q4_0: ['nibbles', 16] } as const;

/** Encodes the rows of a matrix as `wanted` if they are whole blocks, else as f16. */
export function encodeMatrix(
  values: Float32Array,
  numRows: number,
  numColumns: number,
  wanted: keyof typeof codes = 'q8_0',
): StoredMatrix {
  const dtype = numColumns % blockSize === 0 ? wanted : 'f16';
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

/**
 * `name.codes` i8 `[rows, columns]` or, with 4 bits each, `name.nibbles` i8 `[rows, columns / 2]`, and `name.scales`
 * f16 `[rows, columns / 32]`; or `name` f16.
 */
export function matrixTensors(name: string, { numRows, numColumns, dtype, bytes }: StoredMatrix): SidecarTensor[] {
  if (dtype === 'f16') return [{ name, dtype, shape: [numRows, numColumns], data: bytes }];
  const [part, codeBytes] = codes[dtype];
  const numBlocks = bytes.length / (scaleBytes + codeBytes);
  const scales = new Uint8Array(numBlocks * scaleBytes);
  const data = new Uint8Array(numBlocks * codeBytes);
  for (let block = 0; block < numBlocks; block++) {
    const at = block * (scaleBytes + codeBytes);
    scales.set(bytes.subarray(at, at + scaleBytes), block * scaleBytes);
    data.set(bytes.subarray(at + scaleBytes, at + scaleBytes + codeBytes), block * codeBytes);
  }
  return [
    { name: `${name}.${part}`, dtype: 'i8', shape: [numRows, (numColumns * codeBytes) / blockSize], data },
    { name: `${name}.scales`, dtype: 'f16', shape: [numRows, numColumns / blockSize], data: scales },
  ];
}

/** The tensors of a file. */
export interface TensorReader {
  has(name: string): boolean;
  /** The bytes of a tensor, checked to be of this dtype and shape. */
  read(name: string, dtype: DType, shape: Shape): Promise<Uint8Array>;
}

/** Reads a matrix from the tensors of a file. */
export async function readMatrix(
  name: string,
  numRows: number,
  numColumns: number,
  file: TensorReader,
): Promise<StoredMatrix> {
  if (numColumns % blockSize !== 0) {
    return { numRows, numColumns, dtype: 'f16', bytes: await file.read(name, 'f16', [numRows, numColumns]) };
  }
  const dtype = file.has(`${name}.nibbles`) ? 'q4_0' : 'q8_0';
  const [part, codeBytes] = codes[dtype];
  const data = await file.read(`${name}.${part}`, 'i8', [numRows, (numColumns * codeBytes) / blockSize]);
  const scales = await file.read(`${name}.scales`, 'f16', [numRows, numColumns / blockSize]);
  const numBlocks = scales.length / scaleBytes;
  const bytes = new Uint8Array(scales.length + data.length);
  for (let block = 0; block < numBlocks; block++) {
    const at = block * (scaleBytes + codeBytes);
    bytes.set(scales.subarray(block * scaleBytes, (block + 1) * scaleBytes), at);
    bytes.set(data.subarray(block * codeBytes, (block + 1) * codeBytes), at + scaleBytes);
  }
  return { numRows, numColumns, dtype, bytes };
}
