/** One query, one key after the other, in f64: the definition in @winnow/ops, for rows where something is not finite. */
import { bytesOf, decode } from '../quant/dequantize';
import { addressOf, attributeF, dim, dtypeOf } from '../runtime/record';

/** Writes m and l to `state`, o to `output`; scratch follows `state`: a key row, a value row, sums in f64. */
export function attendSlowly(
  token: i32,
  head: i32,
  kvHead: i32,
  begin: i32,
  end: i32,
  reach: i32,
  lead: i32,
  output: usize,
  state: usize,
): void {
  const headDim = dim(0, 2);
  const numKvHeads = dim(3, 1);
  const blockSize = dim(3, 2);
  const valueDim = dim(4, 3);
  const keyType = dtypeOf(3);
  const valueType = dtypeOf(4);
  const query = addressOf(0) + ((<usize>(token * dim(0, 1) + head) * <usize>headDim) << 2);
  const position = load<i32>(addressOf(1) + ((<usize>token) << 2));
  const sequence = load<i32>(addressOf(2) + ((<usize>token) << 2));
  const scale = <f64>attributeF(0);
  const softCap = <f64>attributeF(3);
  const key = state + 16;
  const value = key + ((<usize>headDim) << 2);
  const sums = (value + ((<usize>valueDim) << 2) + 7) & ~7;
  memory.fill(sums, 0, (<usize>valueDim) << 3);
  let top: f64 = -Infinity;
  let denominator: f64 = 0;
  for (let logical = begin; logical < end; logical++) {
    const block = load<i32>(addressOf(6) + ((<usize>(sequence * dim(6, 1) + logical / blockSize)) << 2));
    const offset = logical % blockSize;
    const keyPosition = load<i32>(addressOf(5) + ((<usize>(block * blockSize + offset)) << 2));
    const distance = position - keyPosition;
    if (keyPosition < 0 || distance < lead || distance > reach) continue;
    const row = <usize>(block * numKvHeads + kvHead) * <usize>blockSize + <usize>offset;
    decode(keyType, addressOf(3) + row * bytesOf(keyType, headDim), key, headDim);
    let logit: f64 = 0;
    for (let i: usize = 0; i < <usize>headDim; i++) {
      logit += <f64>load<f32>(query + (i << 2)) * <f64>load<f32>(key + (i << 2));
    }
    logit *= scale;
    if (softCap !== 0) logit = softCap * Math.tanh(logit / softCap);
    if (logit === -Infinity) continue;
    if (logit > top || logit !== logit) {
      const shrink = top === -Infinity ? 0 : Math.exp(top - logit);
      denominator *= shrink;
      for (let i: usize = 0; i < <usize>valueDim; i++) store<f64>(sums + (i << 3), load<f64>(sums + (i << 3)) * shrink);
      top = logit;
    }
    const weight = Math.exp(logit - top);
    denominator += weight;
    decode(valueType, addressOf(4) + row * bytesOf(valueType, valueDim), value, valueDim);
    for (let i: usize = 0; i < <usize>valueDim; i++) {
      const at = sums + (i << 3);
      store<f64>(at, load<f64>(at) + weight * <f64>load<f32>(value + (i << 2)));
    }
  }
  store<f32>(state, <f32>top);
  // the sums are relative to the maximum as it is stored
  const rounding = top === -Infinity ? 0 : Math.exp(top - <f64>(<f32>top));
  store<f32>(state, <f32>(denominator * rounding), 4);
  for (let i: usize = 0; i < <usize>valueDim; i++) {
    store<f32>(output + (i << 2), <f32>(load<f64>(sums + (i << 3)) * rounding));
  }
}
