/**
 * The tokens of a matmul: where their activations are, in f32 or as 8-bit codes, and where their outputs go. Every thread sets
 * this at the beginning of an op.
 */
import { codeBytesFor, codesFor, metasAt } from '../quant/quantize-activations';
import { loadTail, storeUpTo4 } from '../simd/tail';
import { META_BYTES } from '../runtime/layout.generated';

/** List of the row of y of each token, or 0 if token t has row t; `rowsPerInput` consecutive rows of y share a row of x. */
let order: usize = 0;
let rowsPerInput: usize = 1;
let x: usize = 0;
let xBytes: usize = 0;
let y: usize = 0;
let yBytes: usize = 0;
let bias: usize = 0;
let codes: usize = 0;
let codeBytes: usize = 0;
let metas: usize = 0;
let metaBytes: usize = 0;

/** Token t reads row t of x and writes row t of y. */
export function beginTokens(from: usize, numInputs: i32, to: usize, numOutputs: i32): void {
  order = 0;
  bias = 0;
  x = from;
  xBytes = (<usize>numInputs) << 2;
  y = to;
  yBytes = (<usize>numOutputs) << 2;
}

/** Token t reads row `list[t] / perInput` of x and writes row `list[t]` of y. */
export function orderTokens(list: usize, perInput: i32): void {
  order = list;
  rowsPerInput = perInput;
}

/** Sets the address of the bias of output 0; 0 for no bias. */
export function setBias(at: usize): void {
  bias = at;
}

/** Uses the codes of `numRows` rows of x that `quantizeTokens` stored at `base`, in the form for weights of `dtype`. */
export function setCodes(dtype: i32, base: usize, numRows: i32, numInputs: i32): void {
  codes = codesFor(dtype, base, numRows, numInputs);
  codeBytes = codeBytesFor(dtype, numInputs);
  metas = metasAt(base, numRows, numInputs);
  metaBytes = <usize>(numInputs >> 5) * META_BYTES;
}

/* @inline */ function rowOfY(token: i32): usize {
  return order === 0 ? <usize>token : <usize>load<u32>(order + ((<usize>token) << 2));
}
/* @inline */ function rowOfX(token: i32): usize {
  return order === 0 ? <usize>token : rowOfY(token) / rowsPerInput;
}
/* @inline */ export function floatsOf(token: i32): usize {
  return x + rowOfX(token) * xBytes;
}
/* @inline */ export function codesOf(token: i32): usize {
  return codes + rowOfX(token) * codeBytes;
}
/* @inline */ export function metasOf(token: i32): usize {
  return metas + rowOfX(token) * metaBytes;
}
/* @inline */ export function outputsOf(token: i32): usize {
  return y + rowOfY(token) * yBytes;
}

/** Stores four sums plus their biases as outputs from `o` on; those from `end` on are dropped. */
/* @inline */ export function storeOutputs(sums: v128, o: i32, end: i32, token: i32): void {
  const at = (<usize>o) << 2;
  if (bias !== 0) sums = f32x4.add(sums, o + 4 <= end ? v128.load(bias + at) : loadTail(bias + at, end - o));
  storeUpTo4(outputsOf(token) + at, sums, end - o);
}

/* @inline */ export function storeOutput(sum: f32, o: i32, token: i32): void {
  const at = (<usize>o) << 2;
  store<f32>(outputsOf(token) + at, bias === 0 ? sum : sum + load<f32>(bias + at));
}
