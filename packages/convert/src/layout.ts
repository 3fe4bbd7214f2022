/** Maps the weights of a model to the tensors of a format: fused, transposed and offset as its requests specify. */
import type { StoredTensor } from '@winnow/bytes';
import {
  gatheredRowsView,
  mappedView,
  reencodedView,
  reshapedView,
  rowsView,
  transposedView,
  type Weight,
  type WeightRequest,
} from '@winnow/models';
import { FormatError, type DType, type Shape } from '@winnow/tensor';
import { concatenatedView, mergedMatricesView, zerosView } from './views.js';

/** Presents q, k and v as one matrix, so that a format with both layouts stores them fused. */
export function showFusedAttention(shown: Map<string, Shape>): void {
  for (const name of [...shown.keys()]) {
    const attention = /^(.*)\.attn_[qkv]\.(weight|bias)$/.exec(name);
    if (attention === null) continue;
    shown.delete(name);
    shown.set(`${attention[1]}.attn_qkv.${attention[2]}`, [1]);
  }
}

/**
 * @param requests requests of the target format, whose `name` is that of a weight
 * @param dtypeOf the dtype to store a weight in; fused parts must agree
 * @param importance of the columns of a tensor of that name and shape, if known
 * @throws {FormatError} when the format has no tensor for a weight
 */
export function layOut(
  source: string,
  weights: ReadonlyMap<string, Weight>,
  requests: readonly WeightRequest[],
  dtypeOf: (weight: Weight) => DType,
  importance: (storedName: string, shape: Shape) => Float32Array | undefined = () => undefined,
): StoredTensor[] {
  checkAllStored(source, weights, requests);
  const groups = new Map<string, WeightRequest[]>();
  for (const request of requests) {
    const group = groups.get(request.storedName);
    if (group === undefined) groups.set(request.storedName, [request]);
    else group.push(request);
  }
  return [...groups].flatMap(([storedName, group]) => {
    const parts = group.toSorted((a, b) => (a.rows?.begin ?? 0) - (b.rows?.begin ?? 0));
    const [first] = parts as [WeightRequest];
    const owners = parts.map(({ name }) => weights.get(name) as Weight);
    const dtypes = owners.map(dtypeOf);
    // a fused tensor gets a dtype that suits all its parts
    const dtype = dtypes.every((other) => other === dtypes[0]) ? (dtypes[0] as DType) : 'f32';
    const isPlain = first.storedAs === undefined || first.storedAs === 'transposed-rows';
    const encoded = parts.map(({ shape, storedAs: how }, index) => {
      const { stored } = owners[index] as Weight;
      const shaped = reshapedView(stored, shape);
      if (how === 'transposed-rows') return transposed(source, shaped, dtype);
      return reencodedView(shaped, isPlain ? dtype : 'f32', importance(storedName, shape));
    });
    const laid = storedAs(source, wholeOf(storedName, parts, encoded), first.storedAs, dtype);
    if (first.stackOf === undefined) return [{ ...laid, name: storedName, read: laid.read }];
    return first.stackOf.map((name, index) => {
      const row = rowsView(laid, index, index + 1);
      return { ...reshapedView(row, laid.shape.slice(1)), name };
    });
  });
}

/** The tensor that consists of these parts. */
function wholeOf(name: string, parts: readonly WeightRequest[], encoded: readonly StoredTensor[]): StoredTensor {
  const [first, ...others] = encoded as [StoredTensor, ...StoredTensor[]];
  const { rows } = parts[0] as WeightRequest;
  if (rows === undefined) return first;
  const [, ...rest] = first.shape;
  if (rows.step === undefined) {
    // rows before the first part belong to no weight, such as the positions of padding
    const unused = rows.begin === 0 ? [] : [zerosView(name, first.dtype, [rows.begin, ...rest])];
    const joined = concatenatedView(name, [rows.total, ...rest], [...unused, first, ...others]);
    return rows.storedRowOf === undefined ? joined : permutedView(joined, rows.storedRowOf);
  }
  const places = parts.map(({ rows: own }) => ({ begin: own?.begin ?? 0, step: own?.step ?? 1 }));
  const stack = mergedMatricesView(name, rows.total, encoded, places);
  if (rows.isFlat !== true) return stack;
  const [numMatrices, numRows, ...columns] = stack.shape as readonly [number, number, ...number[]];
  return reshapedView(stack, [numMatrices * numRows, ...columns]);
}

/** A view whose row `storedRowOf(i)` is row `i` of `stored`. */
function permutedView(stored: StoredTensor, storedRowOf: (row: number) => number): StoredTensor {
  const from = new Int32Array(stored.shape[0] as number);
  for (let row = 0; row < from.length; row++) from[storedRowOf(row)] = row;
  return gatheredRowsView(stored, stored.shape, (row) => from[row] as number);
}

/** Transposes a matrix. Quantized blocks cannot be split, so they are stored unquantized. */
function transposed(source: string, matrix: StoredTensor, dtype: DType): StoredTensor {
  return transposedView(source, reencodedView(matrix, dtype === 'f16' || dtype === 'bf16' ? dtype : 'f32'));
}

function storedAs(source: string, whole: StoredTensor, how: WeightRequest['storedAs'], dtype: DType): StoredTensor {
  switch (how) {
    case undefined:
    case 'transposed-rows':
      return whole;
    case 'transposed':
      return transposed(source, whole, dtype);
    case 'minus-one':
      return mappedView(whole, (value) => value - 1);
    case 'log-of-negative':
      return mappedView(whole, (value) => Math.log(-value));
  }
}

function checkAllStored(
  source: string,
  weights: ReadonlyMap<string, Weight>,
  requests: readonly WeightRequest[],
): void {
  const asked = new Set(requests.map(({ name }) => name));
  for (const name of weights.keys()) {
    if (asked.has(name)) continue;
    const message = 'the target format has no counterpart of this tensor';
    throw new FormatError({ source, field: name, message });
  }
}
