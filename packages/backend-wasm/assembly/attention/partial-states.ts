/** Partial states of split-KV attention: maxima and sums `[splits, T, N]`, weighted sums of values `[splits, T, N, D]`. */
import { floatAt, setFloat } from '../runtime/arrays';

/** Rescaling factors of the two states of a merge. */
export let ownFactor: f32 = 0;
export let otherFactor: f32 = 0;

/** Computes the rescaling factors of two states from their maxima; returns the merged maximum. */
export function mergeMaxima(own: f32, other: f32): f32 {
  const top = max<f32>(own, other);
  ownFactor = own === -Infinity ? 0 : <f32>Math.exp(<f64>own - <f64>top);
  otherFactor = other === -Infinity ? 0 : <f32>Math.exp(<f64>other - <f64>top);
  return top;
}

let mAt: usize = 0;
let lAt: usize = 0;
let oAt: usize = 0;
let valueDim: i32 = 0;

/** Opens the state of a row, which `mergeState` merges others into. */
export function openState(m: usize, l: usize, o: usize, row: i32, length: i32): void {
  valueDim = length;
  mAt = m + ((<usize>row) << 2);
  lAt = l + ((<usize>row) << 2);
  oAt = o + ((<usize>row * <usize>length) << 2);
}

/** Merges the state of a row into the open one. */
export function mergeState(m: usize, l: usize, o: usize, row: i32): void {
  if (floatAt(m, row) === -Infinity) return;
  store<f32>(mAt, mergeMaxima(load<f32>(mAt), floatAt(m, row)));
  store<f32>(lAt, load<f32>(lAt) * ownFactor + floatAt(l, row) * otherFactor);
  const from = o + ((<usize>row * <usize>valueDim) << 2);
  const own = ownFactor;
  const other = otherFactor;
  for (let i = 0; i < valueDim; i++) setFloat(oAt, i, floatAt(oAt, i) * own + floatAt(from, i) * other);
}

/** `y = o / l` of one query; zeros when it saw no key. */
export function finishState(l: f32, o: usize, y: usize, length: i32): void {
  const factor: f32 = l === 0 ? 0 : 1 / l;
  for (let i = 0; i < length; i++) setFloat(y, i, floatAt(o, i) * factor);
}
