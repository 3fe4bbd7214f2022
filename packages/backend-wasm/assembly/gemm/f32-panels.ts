/**
 * Blocked f32 GEMM: panels of MC rows, which lie anywhere, and KC columns are dequantized once for all tokens, of which eight lie side
 * by side in registers. A caller begins a panel, lists its rows, loads each KC columns and multiplies them, then takes the sums.
 */
import { F32, bytesOf, dequantize } from '../quant/dequantize';
import { highTwos, highWords, lowTwos, lowWords } from '../simd/interleave';
import { gemm4x8 } from './f32-gemm.generated';

/** Rows of a panel. */
export const MC: i32 = 32;
/** Columns of a panel: 64 KiB of weights, 16 KiB of activations. */
export const KC: i32 = 512;
/** Bytes from one dequantized row to the next. */
const ROW_BYTES: usize = (<usize>KC) << 2;

/** Addresses of the rows. */
let rows: usize = 0;
let dequantized: usize = 0;
/** Sums `[row / 4][eight tokens][4][8]`. */
let sums: usize = 0;
let dtype: i32 = 0;
let numRows: i32 = 0;
let numEights: i32 = 0;
let column: i32 = 0;
let depth: i32 = 0;

/** Lays a panel of `count` rows times so many eights of tokens out in the scratch; returns where that ends. */
export function beginF32Panel(scratch: usize, weightType: i32, count: i32, eights: i32): usize {
  rows = scratch;
  dequantized = rows + ((<usize>MC) << 2);
  sums = dequantized + <usize>MC * ROW_BYTES;
  dtype = weightType;
  numRows = count;
  numEights = eights;
  return sums + ((<usize>((MC >> 2) * eights)) << 7);
}

export function listRow(r: i32, at: usize): void {
  store<u32>(rows + ((<usize>r) << 2), <u32>at);
}

/** Loads columns `[k, k + count)` of the rows; `k` is the first of a block. */
export function loadColumns(k: i32, count: i32): void {
  column = k;
  depth = count;
  if (dtype === F32) return;
  for (let r: usize = 0; r < <usize>numRows; r++) {
    dequantize(dtype, <usize>load<u32>(rows + (r << 2)) + bytesOf(dtype, k), dequantized + r * ROW_BYTES, count);
  }
}

/** Row `r`, or the last one beyond it, from the loaded columns on. */
function rowAt(r: i32): usize {
  const row = <usize>min<i32>(r, numRows - 1);
  if (dtype === F32) return <usize>load<u32>(rows + (row << 2)) + ((<usize>column) << 2);
  return dequantized + row * ROW_BYTES;
}

/** Adds the loaded columns times eight tokens, the `eight`th ones, at `x[depth][8]`. */
export function multiplyEight(eight: i32, x: usize): void {
  for (let r = 0; r < numRows; r += 4) {
    const c = sums + ((<usize>((r >> 2) * numEights + eight)) << 7);
    gemm4x8(c, rowAt(r), rowAt(r + 1), rowAt(r + 2), rowAt(r + 3), x, depth, column > 0);
  }
}

/** All columns times eights of tokens `stride` bytes apart, at `x[numInputs][8]`. */
export function multiplyEights(numInputs: i32, x: usize, stride: usize): void {
  for (let k = 0; k < numInputs; k += KC) {
    loadColumns(k, min<i32>(KC, numInputs - k));
    for (let eight = 0; eight < numEights; eight++) {
      multiplyEight(eight, x + <usize>eight * stride + ((<usize>k) << 5));
    }
  }
}

/** The sums of rows `[r, r + 4)` for a token. */
export function f32PanelSums(r: i32, token: i32): v128 {
  const at = sums + ((<usize>((r >> 2) * numEights + (token >> 3))) << 7) + ((<usize>(token & 7)) << 2);
  return f32x4(load<f32>(at), load<f32>(at, 32), load<f32>(at, 64), load<f32>(at, 96));
}

/** `count` numbers of eight tokens, whose addresses are at `tokens`, from `offset` on, as `[count][8]`. */
export function packEight(tokens: usize, offset: usize, count: i32, to: usize): void {
  for (let half: usize = 0; half < 2; half++, tokens += 16, to += 16) {
    let x0 = <usize>load<u32>(tokens) + offset;
    let x1 = <usize>load<u32>(tokens, 4) + offset;
    let x2 = <usize>load<u32>(tokens, 8) + offset;
    let x3 = <usize>load<u32>(tokens, 12) + offset;
    let out = to;
    let i = count;
    for (; i >= 4; i -= 4, x0 += 16, x1 += 16, x2 += 16, x3 += 16, out += 128) {
      const a = v128.load(x0);
      const b = v128.load(x1);
      const c = v128.load(x2);
      const d = v128.load(x3);
      const ab = lowWords(a, b);
      const cd = lowWords(c, d);
      const ef = highWords(a, b);
      const gh = highWords(c, d);
      v128.store(out, lowTwos(ab, cd));
      v128.store(out, highTwos(ab, cd), 32);
      v128.store(out, lowTwos(ef, gh), 64);
      v128.store(out, highTwos(ef, gh), 96);
    }
    for (; i > 0; i--, x0 += 4, x1 += 4, x2 += 4, x3 += 4, out += 32) {
      v128.store(out, f32x4(load<f32>(x0), load<f32>(x1), load<f32>(x2), load<f32>(x3)));
    }
  }
}

/** Tokens `[8 eight, 8 eight + 8)` of x as `[numInputs][8]` at `to`; beyond the last token it stands in. `scratch` takes 32 bytes. */
export function packTokens(x: usize, eight: i32, numTokens: i32, numInputs: i32, to: usize, scratch: usize): void {
  for (let lane = 0; lane < 8; lane++) {
    const token = <usize>min<i32>((eight << 3) + lane, numTokens - 1);
    store<u32>(scratch + ((<usize>lane) << 2), <u32>(x + ((token * <usize>numInputs) << 2)));
  }
  packEight(scratch, 0, numInputs, to);
}

/** What `beginF32Panel` lays out for so many tokens, whole eights. */
export function f32PanelBytes(tokens: i32): u64 {
  return MC * 4 + MC * ROW_BYTES + MC * 4 * <u64>tokens;
}
