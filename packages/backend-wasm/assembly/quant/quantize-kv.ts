/** Quantizes f32 to the dtypes of a KV cache, byte for byte like the encoders of `@winnow/tensor`: the same steps in f32. */
import { BF16, F16, F32, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, bytesOf } from './dequantize';
import { floatAt } from '../runtime/arrays';
import { floatToHalf } from '../simd/vector';

/** Largest finite binary16. */
const MAX_HALF: f32 = 65504;

/** Quantizes `count` floats at `from` to `dtype` at `to`. */
export function quantizeKv(dtype: i32, from: usize, to: usize, count: i32): void {
  if (dtype === F32) memory.copy(to, from, (<usize>count) << 2);
  else if (dtype === F16) {
    for (let i = 0; i < count; i++, from += 4, to += 2) store<u16>(to, <u16>floatToHalf(load<f32>(from)));
  } else if (dtype === BF16) {
    for (let i = 0; i < count; i++, from += 4, to += 2) store<u16>(to, <u16>floatToBfloat16(load<u32>(from)));
  } else {
    const blockBytes = bytesOf(dtype, 32);
    for (let i = 0; i < count; i += 32, from += 128, to += blockBytes) quantizeKvBlock(dtype, from, to);
  }
}

function quantizeKvBlock(dtype: i32, from: usize, to: usize): void {
  if (dtype === Q8_0) quantizeQ8(from, to);
  else if (dtype === Q4_0) quantizeSymmetric(from, to, 8, to + 2, 0);
  else if (dtype === Q5_0) quantizeSymmetric(from, to, 16, to + 6, to + 2);
  else if (dtype === Q4_1) quantizeAsymmetric(from, to, 15, to + 4, 0);
  else if (dtype === Q5_1) quantizeAsymmetric(from, to, 31, to + 8, to + 4);
  else unreachable();
}

function floatToBfloat16(bits: u32): u32 {
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >> 16) | 0x40;
  return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

function saturate(value: f32): f32 {
  return min<f32>(MAX_HALF, max<f32>(-MAX_HALF, value));
}

/** Codes round half away from zero. */
function quantizeQ8(from: usize, to: usize): void {
  let extreme: f32 = 0;
  for (let i = 0; i < 32; i++) if (abs<f32>(floatAt(from, i)) > extreme) extreme = abs<f32>(floatAt(from, i));
  const inverse = storeScale(saturate(extreme / 127), to);
  for (let i = 0; i < 32; i++) {
    const scaled: f32 = floatAt(from, i) * inverse;
    const magnitude = <i32>min<f64>(127, floor<f64>(<f64>abs<f32>(scaled) + 0.5));
    store<i8>(to + i, <i8>(scaled < 0 ? -magnitude : magnitude), 2);
  }
}

/** Stores a scale and returns its inverse. */
function storeScale(d: f32, to: usize): f32 {
  store<u16>(to, <u16>floatToHalf(d));
  return d === 0 ? 0 : <f32>1 / d;
}

/** Stores the nearest codes of 32 numbers, `(x - low) * inverse + zero`: nibbles and, with `high`, their fifth bits. */
function storeCodes(from: usize, low: f32, inverse: f32, zero: i32, maxCode: i32, nibbles: usize, high: usize): void {
  if (high !== 0) store<u32>(high, 0);
  for (let i = 0; i < 32; i++) {
    const scaled: f32 = (floatAt(from, i) - low) * inverse;
    const nearest = <i32>(<f32>(<f64>scaled + <f64>zero + 0.5));
    const code = min<i32>(maxCode, max<i32>(0, nearest));
    const at = nibbles + (i & 15);
    if (i < 16) store<u8>(at, <u8>(code & 15));
    else store<u8>(at, load<u8>(at) | <u8>((code & 15) << 4));
    if (high !== 0) store<u32>(high, load<u32>(high) | ((<u32>(code >> 4)) << i));
  }
}

function quantizeSymmetric(from: usize, to: usize, zero: i32, nibbles: usize, high: usize): void {
  let extreme: f32 = 0;
  for (let i = 0; i < 32; i++) if (abs<f32>(floatAt(from, i)) > abs<f32>(extreme)) extreme = floatAt(from, i);
  const inverse = storeScale(saturate(extreme / <f32>-zero), to);
  storeCodes(from, 0, inverse, zero, 2 * zero - 1, nibbles, high);
}

function quantizeAsymmetric(from: usize, to: usize, maxCode: i32, nibbles: usize, high: usize): void {
  let low: f32 = Infinity;
  let top: f32 = -Infinity;
  for (let i = 0; i < 32; i++) {
    low = min<f32>(low, floatAt(from, i));
    top = max<f32>(top, floatAt(from, i));
  }
  low = saturate(low);
  const inverse = storeScale(saturate((top - low) / <f32>maxCode), to);
  store<u16>(to, <u16>floatToHalf(low), 2);
  storeCodes(from, low, inverse, 0, maxCode, nibbles, high);
}
