/** Quantized matrices as f32 of shape `[numOutputs, numInputs]`, dequantized a few rows at a time. */
import type { StoredTensor } from '@winnow/bytes';
import { decoder, FormatError } from '@winnow/tensor';
import type { OnnxTensor } from './tensor-proto.js';

/** Approximate number of values dequantized at a time. */
const tileValues = 1 << 20;

export interface AffineQuantized {
  readonly data: OnnxTensor;
  readonly scale: OnnxTensor;
  readonly zeroPoint: OnnxTensor | undefined;
  /** Axis of the scales when there is more than one. */
  readonly axis: number;
  /** The file stores `[numInputs, numOutputs]`. */
  readonly isTransposed: boolean;
}

/** `(q - zeroPoint) * scale`: DequantizeLinear, MatMulInteger. */
export function affineView(source: string, name: string, quantized: AffineQuantized): StoredTensor {
  const { data, scale, zeroPoint, axis, isTransposed } = quantized;
  const refuse = (message: string): FormatError => new FormatError({ source, field: name, message });
  if (data.shape.length !== 2) throw refuse(`expected a quantized matrix, got ${data.shape.length} dimensions`);
  if (data.type !== 'i8' && data.type !== 'u8') throw refuse(`expected i8 or u8, got ${data.type}`);
  const [storedRows, storedColumns] = data.shape as unknown as [number, number];
  const numScales = scale.shape.reduce((product, dim) => product * dim, 1);
  const at = axis < 0 ? axis + 2 : axis;
  if (numScales !== 1 && numScales !== data.shape[at]) {
    throw refuse(`expected 1 or ${data.shape[at]} scales, got ${numScales}`);
  }
  const [numRows, numColumns] = isTransposed ? [storedColumns, storedRows] : [storedRows, storedColumns];
  // scales apply to rows or columns of the stored matrix
  const isByRow = isTransposed ? at === 1 : at === 0;
  const isSigned = data.type === 'i8';
  return rowsView(name, [numRows, numColumns], async (begin, end, signal) => {
    const options = signal === undefined ? {} : { signal };
    const scales = await floats(scale, refuse, options);
    const zeros = zeroPoint === undefined ? undefined : await integers(zeroPoint, refuse, options);
    const bytes = new Uint8Array(isTransposed ? data.sizeBytes : (end - begin) * numColumns);
    await data.read(bytes, { ...options, byteOffset: isTransposed ? 0 : begin * numColumns });
    const codes = isSigned ? new Int8Array(bytes.buffer) : bytes;
    const values = new Float32Array((end - begin) * numColumns);
    for (let row = begin; row < end; row++) {
      for (let column = 0; column < numColumns; column++) {
        const code = codes[isTransposed ? column * numRows + row : (row - begin) * numColumns + column] as number;
        const index = numScales === 1 ? 0 : isByRow ? row : column;
        const zero = zeros === undefined ? 0 : (zeros[zeros.length === 1 ? 0 : index] as number);
        values[(row - begin) * numColumns + column] = (code - zero) * (scales[index] as number);
      }
    }
    return values;
  });
}

export interface BlockQuantized {
  readonly data: OnnxTensor;
  readonly scales: OnnxTensor;
  readonly zeroPoints: OnnxTensor | undefined;
  readonly numInputs: number; // K
  readonly numOutputs: number; // N
  readonly bits: number;
  readonly blockSize: number;
}

/** MatMulNBits of com.microsoft: rows of `numInputs` values in blocks, low bits first. */
export function blocksView(source: string, name: string, quantized: BlockQuantized): StoredTensor {
  const { data, scales, zeroPoints, numInputs, numOutputs, bits, blockSize } = quantized;
  const refuse = (message: string): FormatError => new FormatError({ source, field: name, message });
  const isPower = Number.isInteger(Math.log2(blockSize)) && blockSize >= 16;
  if ((bits !== 4 && bits !== 8) || !isPower)
    throw refuse(`expected 4 or 8 bits in blocks of 16 or more, got ${bits} in ${blockSize}`);
  const numBlocks = Math.ceil(numInputs / blockSize);
  const rowBytes = (numBlocks * blockSize * bits) / 8;
  if (data.sizeBytes !== numOutputs * rowBytes) {
    throw refuse(`expected ${numOutputs * rowBytes} bytes of codes, got ${data.sizeBytes}`);
  }
  const numScales = scales.shape.reduce((product, dim) => product * dim, 1);
  if (numScales !== numOutputs * numBlocks) throw refuse(`expected ${numOutputs * numBlocks} scales, got ${numScales}`);
  const arePacked = zeroPoints?.type === 'u8';
  const zeroRow = arePacked ? Math.ceil((numBlocks * bits) / 8) : numBlocks;
  return rowsView(name, [numOutputs, numInputs], async (begin, end, signal) => {
    const options = signal === undefined ? {} : { signal };
    const factors = await floats(scales, refuse, options);
    const zeroCodes = zeroPoints === undefined ? undefined : await integers(zeroPoints, refuse, options);
    if (zeroCodes !== undefined && zeroCodes.length < numOutputs * zeroRow) {
      throw refuse(`expected ${numOutputs * zeroRow} zero points, got ${zeroCodes.length}`);
    }
    const bytes = new Uint8Array((end - begin) * rowBytes);
    await data.read(bytes, { ...options, byteOffset: begin * rowBytes });
    const values = new Float32Array((end - begin) * numInputs);
    for (let row = begin; row < end; row++) {
      const from = (row - begin) * rowBytes;
      for (let block = 0; block < numBlocks; block++) {
        const factor = factors[row * numBlocks + block] as number;
        const zero = zeroOf(zeroCodes, row * zeroRow, block, bits, arePacked);
        const stop = Math.min(numInputs, (block + 1) * blockSize);
        for (let column = block * blockSize; column < stop; column++) {
          const code =
            bits === 8
              ? (bytes[from + column] as number)
              : ((bytes[from + (column >> 1)] as number) >> (4 * (column & 1))) & 15;
          values[(row - begin) * numInputs + column] = (code - zero) * factor;
        }
      }
    }
    return values;
  });
}

function zeroOf(
  codes: ArrayLike<number> | undefined,
  begin: number,
  block: number,
  bits: number,
  arePacked: boolean,
): number {
  if (codes === undefined) return 2 ** (bits - 1);
  if (!arePacked || bits === 8) return codes[begin + block] as number;
  return ((codes[begin + (block >> 1)] as number) >> (4 * (block & 1))) & 15;
}

type Refuse = (message: string) => FormatError;

async function floats(tensor: OnnxTensor, refuse: Refuse, options: { signal?: AbortSignal }): Promise<Float32Array> {
  const bytes = new Uint8Array(tensor.sizeBytes);
  await tensor.read(bytes, options);
  if (tensor.type === 'f32') return new Float32Array(bytes.buffer);
  if (tensor.type === 'f16' || tensor.type === 'bf16') return halves(tensor.type, bytes);
  throw refuse(`expected scales in f32, f16 or bf16, got ${tensor.type}`);
}

function halves(type: 'f16' | 'bf16', bytes: Uint8Array): Float32Array {
  const values = new Float32Array(bytes.length / 2);
  decoder(type)(bytes, 0, values, 0, values.length);
  return values;
}

/** Zero points in their stored type. */
async function integers(
  tensor: OnnxTensor,
  refuse: Refuse,
  options: { signal?: AbortSignal },
): Promise<ArrayLike<number>> {
  if (tensor.type === 'f32' || tensor.type === 'f16' || tensor.type === 'bf16') return floats(tensor, refuse, options);
  const bytes = new Uint8Array(tensor.sizeBytes);
  await tensor.read(bytes, options);
  if (tensor.type === 'u8') return bytes;
  if (tensor.type === 'i8') return new Int8Array(bytes.buffer);
  if (tensor.type === 'i32') return new Int32Array(bytes.buffer);
  throw refuse(`expected zero points in u8, i8, i32 or floats, got ${tensor.type}`);
}

/** A tensor whose rows are computed on read. */
function rowsView(
  name: string,
  shape: readonly [number, number],
  compute: (begin: number, end: number, signal: AbortSignal | undefined) => Promise<Float32Array>,
): StoredTensor {
  const rowBytes = 4 * shape[1];
  const sizeBytes = shape[0] * rowBytes;
  const tileRows = Math.max(1, Math.floor(tileValues / Math.max(1, shape[1])));
  return {
    name,
    dtype: 'f32',
    shape,
    sizeBytes,
    async read(target, { byteOffset = 0, signal } = {}) {
      const stop = byteOffset + target.length;
      for (let row = Math.floor(byteOffset / rowBytes); row * rowBytes < stop; row += tileRows) {
        const end = Math.min(shape[0], row + tileRows, Math.ceil(stop / rowBytes));
        const values = await compute(row, end, signal);
        const at = row * rowBytes;
        const [low, high] = [Math.max(at, byteOffset), Math.min(end * rowBytes, stop)];
        target.set(new Uint8Array(values.buffer, low - at, high - low), low - byteOffset);
      }
    },
  };
}
