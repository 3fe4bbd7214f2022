/** Locates and validates the weights of a model under their program names, and loads them. */
import type { StoredTensor, TensorStore } from '@winnow/bytes';
import { weightDTypes } from '@winnow/ops';
import {
  decoder,
  dtypeInfo,
  FormatError,
  formatShape,
  numElements,
  tensorBytes,
  type DType,
  type Shape,
} from '@winnow/tensor';
import { gatheredRowsView, matrixRowsView, reshapedView } from './gathered-views.js';
import { checkedFloats, mappedView, rowsView, stackedView, transposedView } from './stored-views.js';

/** One weight as a program sees it. */
export interface Weight {
  readonly name: string;
  readonly shape: Shape;
  /** Dtype in memory: that of the file for matrices, f32 for vectors. */
  readonly dtype: DType;
  readonly sizeBytes: number;
  readonly stored: StoredTensor;
  /** Must be f32 in memory because it is not read by linear layers. */
  readonly isFloat?: true;
  readonly order?: WeightOrder;
}

/** The order in which files have the rows or columns of a weight, for adapters of it. */
export interface WeightOrder {
  /** The row of a fused matrix for each row of the weight, if they are not consecutive. The file of the weight may have the parts. */
  readonly fusedRowOf?: (row: number) => number;
  /** Folders and GGUF files have different orders. */
  readonly dependsOnFormat?: true;
}

export interface WeightRequest {
  /** Name in programs. */
  readonly name: string;
  /** Name in the file. */
  readonly storedName: string;
  readonly shape: Shape;
  readonly optional?: boolean;
  /** The weight consists of these rows of a fused tensor; `shape` is that of the part. */
  readonly rows?: FusedRows;
  /**
   * What the file stores instead of the weight `w`: the transposed tensor, from which `rows` selects (`transposed`); a tensor of
   * which the selected `rows` are transposed (`transposed-rows`); `w - 1`; or `log(-w)`.
   */
  readonly storedAs?: 'transposed' | 'transposed-rows' | 'minus-one' | 'log-of-negative';
  /** The weight must be f32 in memory because it is not read by linear layers. */
  readonly isFloat?: boolean;
  /** The weight consists of these tensors, stacked along a new first axis; `storedName` appears only in messages. */
  readonly stackOf?: readonly string[];
  readonly order?: WeightOrder;
}

/** The rows of a part of a fused tensor. */
export interface FusedRows {
  readonly begin: number;
  /** Number of rows of all parts. */
  readonly total: number;
  /** Selects every `step`-th row, from row `begin` on, of every matrix of a stack `[numMatrices, numRows, ...]`. */
  readonly step?: number;
  /** The file stores the stack as one matrix, `[numMatrices * numRows, ...]`. */
  readonly isFlat?: true;
  /** The row of the fused tensor for each row of its parts one after another. Default: the same row. */
  readonly storedRowOf?: (row: number) => number;
}

/** A store that looks up tensors by request. */
export interface RequestedStore extends TensorStore {
  /** `undefined` when it has no such tensor. */
  find?(request: WeightRequest): StoredTensor | undefined;
}

/** Maximum number of bytes that loading reads at once. */
export const maxPieceBytes: number = 8 * 1024 * 1024;

/**
 * Locates all requested weights.
 * @param ignored tensors that the file may contain although they are not used
 * @throws {FormatError} when one is missing or has another shape, and when the file has unknown tensors, because ignoring
 *   part of a model would change its results
 */
export function collectWeights(
  store: RequestedStore,
  requests: Iterable<WeightRequest>,
  ignored: (storedName: string) => boolean = () => false,
): Map<string, Weight> {
  const weights = new Map<string, Weight>();
  const used = new Set<string>();
  for (const request of requests) {
    const { name, storedName, shape, optional, order } = request;
    const found = store.find?.(request);
    if (optional === true && found === undefined && !store.tensors.has(request.stackOf?.[0] ?? storedName)) continue;
    const stored = found ?? storedWeight(store, request);
    for (const part of request.stackOf ?? [storedName]) used.add(part);
    const dtype = memoryDType(store.name, stored, request.isFloat === true);
    const isFloat = request.isFloat === true || shape.length < 2;
    weights.set(name, {
      name,
      shape,
      dtype,
      sizeBytes: tensorBytes(dtype, shape),
      stored,
      ...(isFloat ? { isFloat } : {}),
      ...(order === undefined ? {} : { order }),
    });
  }
  if (store.find !== undefined) return weights;
  const unknown = [...store.tensors.keys()].filter((name) => !used.has(name) && !ignored(name));
  if (unknown.length > 0) {
    const shown = unknown.slice(0, 4).join(', ') + (unknown.length > 4 ? ', ...' : '');
    const message = `${unknown.length} tensors are not part of this architecture: ${shown}`;
    throw new FormatError({ source: store.name, field: unknown[0] as string, message });
  }
  return weights;
}

/** Adds the requested weights to those of another part of the model. @throws {FormatError} as `collectWeights` */
export function addWeights(weights: Map<string, Weight>, ...located: Parameters<typeof collectWeights>): void {
  for (const [name, weight] of collectWeights(...located)) weights.set(name, weight);
}

/** The stored tensor, brought into the form of the request. */
function storedWeight(store: TensorStore, { storedName, shape, rows, storedAs, stackOf }: WeightRequest): StoredTensor {
  const part = storedAs === 'transposed-rows' ? transposedShape(shape) : shape;
  const whole = rows === undefined ? part : wholeShape(part, rows);
  const unflattened = storedAs === 'transposed' ? transposedShape(whole) : whole;
  const expected = rows?.isFlat === true ? flatShape(unflattened) : unflattened;
  let stored =
    stackOf === undefined
      ? foundTensor(store, storedName, expected)
      : stackedView(
          store.name,
          storedName,
          stackOf.map((part) => foundTensor(store, part, expected.slice(1))),
        );
  if (rows?.isFlat === true) stored = reshapedView(stored, unflattened);
  if (storedAs === 'transposed') stored = transposedView(store.name, stored);
  if (storedAs === 'minus-one') stored = mappedView(checkedFloats(store.name, stored), (value) => value + 1);
  if (storedAs === 'log-of-negative') {
    stored = mappedView(checkedFloats(store.name, stored), (value) => -Math.exp(value));
  }
  if (rows === undefined) return stored;
  const { begin, step } = rows;
  const rowOf = permutedRowOf(rows);
  if (rowOf !== undefined) return gatheredRowsView(stored, shape, rowOf);
  if (step === undefined) return rowsView(stored, begin, begin + (part[0] as number));
  const selected = matrixRowsView(stored, begin, part[1] as number, step);
  return storedAs === 'transposed-rows' ? transposedView(store.name, selected) : selected;
}

/** The row of the fused tensor for each row of a part of a permuted one. */
function permutedRowOf({ begin, storedRowOf }: FusedRows): ((row: number) => number) | undefined {
  return storedRowOf && ((row) => storedRowOf(begin + row));
}

function transposedShape(shape: Shape): Shape {
  return [...shape.slice(0, -2), ...shape.slice(-2).toReversed()];
}

/** The shape of a stack of matrices as one matrix. */
function flatShape([numMatrices, numRows, ...rest]: Shape): Shape {
  return [(numMatrices as number) * (numRows as number), ...rest];
}

/** The shape of the fused tensor that contains a part of this shape. */
function wholeShape([first, ...rest]: Shape, { total, step }: FusedRows): Shape {
  return step === undefined ? [total, ...rest] : [first as number, total, ...rest.slice(1)];
}

function foundTensor(store: TensorStore, name: string, shape: Shape): StoredTensor {
  const stored = store.tensors.get(name);
  if (stored === undefined) {
    throw new FormatError({ source: store.name, field: name, message: 'the model needs this tensor' });
  }
  if (formatShape(stored.shape) === formatShape(shape)) return stored;
  const message = `expected shape ${formatShape(shape)}, got ${formatShape(stored.shape)}`;
  throw new FormatError({ source: store.name, field: name, message });
}

/** Vectors are added and multiplied as f32; matrices keep their dtype, except f64, which no op reads. */
function memoryDType(source: string, { name, dtype, shape }: StoredTensor, isFloat: boolean): DType {
  const isVector = shape.length < 2 || isFloat;
  if (floatDTypes.includes(dtype) && (isVector || dtype === 'f64')) return 'f32';
  if (!isVector && weightDTypes.includes(dtype)) return dtype;
  const expected = isVector ? 'f32, f16, bf16 or f64' : 'a float or block type';
  throw new FormatError({ source, field: name, message: `expected ${expected} weights, got ${dtype}` });
}

const floatDTypes: readonly DType[] = ['f32', 'f16', 'bf16', 'f64'];

export interface LoadWeightOptions {
  readonly signal?: AbortSignal;
  /** Called with the number of file bytes just read. */
  readonly onBytes?: (numBytes: number) => void;
}

/**
 * Fills `target` with a weight: raw file bytes, or dequantized to f32, read in pieces of a few MB.
 * @throws {IoError} when the file cannot be read
 */
export async function loadWeight(weight: Weight, target: Uint8Array, options: LoadWeightOptions = {}): Promise<void> {
  const { stored, dtype, sizeBytes } = weight;
  if (stored.dtype !== dtype) {
    await decodeWeight(weight, options, async (bytes, byteOffset) => target.set(bytes, byteOffset));
    return;
  }
  for (let begin = 0; begin < sizeBytes; begin += maxPieceBytes) {
    await readPiece(stored, target.subarray(begin, Math.min(sizeBytes, begin + maxPieceBytes)), begin, options);
  }
}

/** Receives the piece of a weight that starts at `byteOffset`. The bytes are reused once the promise resolves. */
export type WritePiece = (bytes: Uint8Array, byteOffset: number) => Promise<void>;

/**
 * Passes a weight to `write` in pieces of at most `maxPieceBytes`, for memory that the host cannot access.
 * @throws {IoError} when the file cannot be read
 */
export async function streamWeight(weight: Weight, write: WritePiece, options: LoadWeightOptions = {}): Promise<void> {
  const { stored, dtype, sizeBytes } = weight;
  if (stored.dtype !== dtype) return decodeWeight(weight, options, write);
  const piece = new Uint8Array(Math.min(sizeBytes, maxPieceBytes));
  for (let begin = 0; begin < sizeBytes; begin += piece.length) {
    const bytes = piece.subarray(0, Math.min(piece.length, sizeBytes - begin));
    await readPiece(stored, bytes, begin, options);
    await write(bytes, begin);
  }
}

/** Dequantizes a weight to f32, piece by piece. */
async function decodeWeight(weight: Weight, options: LoadWeightOptions, write: WritePiece): Promise<void> {
  const { stored, shape } = weight;
  const decode = decoder(stored.dtype);
  const { blockBytes } = dtypeInfo(stored.dtype); // a plain number: one value per block
  const numValues = numElements(shape);
  const values = new Float32Array(Math.min(numValues, maxPieceBytes / Math.max(blockBytes, 4)));
  const bytes = new Uint8Array(values.length * blockBytes);
  for (let begin = 0; begin < numValues; begin += values.length) {
    const count = Math.min(values.length, numValues - begin);
    await readPiece(stored, bytes.subarray(0, count * blockBytes), begin * blockBytes, options);
    decode(bytes, 0, values, 0, count);
    await write(new Uint8Array(values.buffer, 0, 4 * count), 4 * begin);
  }
}

async function readPiece(
  stored: StoredTensor,
  piece: Uint8Array,
  byteOffset: number,
  { signal, onBytes }: LoadWeightOptions,
): Promise<void> {
  signal?.throwIfAborted();
  await stored.read(piece, { byteOffset, ...(signal === undefined ? {} : { signal }) });
  onBytes?.(piece.length);
}
