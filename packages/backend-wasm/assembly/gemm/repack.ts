/**
 * Weights with the rows of a group of four interleaved, in the same bytes: vectors hold four columns of each of four rows,
 * so that one 8-bit dot product instruction adds to the sums of four rows. Layouts of a group, per block:
 *   q8_0  [4 d][8 vectors of codes + 128]
 *   q4_0  [4 d][4 vectors of nibbles]
 *   q4_K  [4 d][4 dmin][3 vectors of scales][32 vectors of nibbles]
 *   q5_K  [4 d][4 dmin][3 vectors of scales][8 vectors of fifth bits][32 vectors of nibbles]
 *   q6_K  [4 d][4 vectors of scales][32 vectors of nibbles][16 vectors of bit pairs]
 * Scales d and dmin are binary16 numbers times 2^10, so that the many that are denormal become normal: a denormal operand of
 * a multiplication costs over a hundred cycles. Rows beyond the last whole group stay as they are. Weights with a scale of
 * 64 and above, Inf or NaN cannot be repacked: they stay as they are, and aux 0 of their plan entry says so.
 */
import { Q4_0, Q4_K, Q5_K, Q6_K, Q8_0, bytesOf } from '../quant/dequantize';
import { highTwos, highWords, lowTwos, lowWords } from '../simd/interleave';
import { addressOf, aux, dim, dtypeOf, localScratch, setAux } from '../runtime/record';
import { phaseBarrier, takeUnits } from '../runtime/threads';

/** The operand of these jobs. */
const WEIGHT: i32 = 0;
/** Rows of a group. */
export const GROUP: i32 = 4;

/** Bits of the first magnitude that cannot be repacked: 64. */
const TOO_LARGE: u32 = 0x5400;
/** Ten, where a binary16 has its exponent. */
const TEN: u32 = 10 << 10;

/** Interleaves the whole groups of a weight matrix. Work items: groups. */
export function repackWeights(): void {
  const dtype = dtypeOf(WEIGHT);
  const numGroups = dim(WEIGHT, 0) / GROUP;
  const groupBytes = bytesOf(dtype, dim(WEIGHT, 1)) * GROUP;
  for (let g = takeUnits(1); g < numGroups; g = takeUnits(1)) {
    if (!hasSmallScales(dtype, addressOf(WEIGHT) + <usize>g * groupBytes, groupBytes)) setAux(0, 1);
  }
  phaseBarrier();
  if (aux(0) === 0) eachGroup(true);
}
export function restoreWeights(): void {
  eachGroup(false);
}

function eachGroup(isRepacking: bool): void {
  const dtype = dtypeOf(WEIGHT);
  const numGroups = dim(WEIGHT, 0) / GROUP;
  const numInputs = dim(WEIGHT, 1);
  const rowBytes = bytesOf(dtype, numInputs);
  const groupBytes = rowBytes * GROUP;
  const copy = localScratch();
  for (let g = takeUnits(1); g < numGroups; g = takeUnits(1)) {
    const group = addressOf(WEIGHT) + <usize>g * groupBytes;
    memory.copy(copy, group, groupBytes);
    if (isRepacking) {
      interleaveRows(dtype, copy, copy + rowBytes, copy + 2 * rowBytes, copy + 3 * rowBytes, group, numInputs);
      continue;
    }
    for (let row = 0; row < GROUP; row++) restoreRow(dtype, copy, row, group + <usize>row * rowBytes, numInputs);
  }
}

/** Whether all scales in whole blocks are below 64. */
export function hasSmallScales(dtype: i32, at: usize, sizeBytes: usize): bool {
  const blockBytes = bytesOf(dtype, dtype === Q8_0 || dtype === Q4_0 ? 32 : 256);
  const end = at + sizeBytes;
  if (dtype === Q6_K) at += 208;
  let isSmall = true;
  for (; at < end; at += blockBytes) {
    if ((<u32>load<u16>(at) & 0x7fff) >= TOO_LARGE) isSmall = false;
    if (dtype === Q4_K || dtype === Q5_K) {
      if ((<u32>load<u16>(at, 2) & 0x7fff) >= TOO_LARGE) isSmall = false;
    }
  }
  return isSmall;
}

/** Interleaves `count` columns of four rows, from whole blocks on. Scales must be small. */
export function interleaveRows(dtype: i32, a: usize, b: usize, c: usize, d: usize, group: usize, count: i32): void {
  const blockBytes = bytesOf(dtype, dtype === Q8_0 || dtype === Q4_0 ? 32 : 256);
  for (const end = a + bytesOf(dtype, count); a < end; a += blockBytes, group += 4 * blockBytes) {
    if (dtype === Q6_K) {
      interleaveScales(a + 208, b + 208, c + 208, d + 208, group);
      interleaveWords(a + 192, b + 192, c + 192, d + 192, group + 8, 4, 0);
      interleaveWords(a, b, c, d, group + 72, 48, 0);
    } else {
      let offset: usize = 2;
      interleaveScales(a, b, c, d, group);
      if (dtype === Q4_K || dtype === Q5_K) {
        interleaveScales(a + 2, b + 2, c + 2, d + 2, group + 8);
        offset = 4;
      }
      const numWords = <i32>(blockBytes - offset) >> 2;
      interleaveWords(
        a + offset,
        b + offset,
        c + offset,
        d + offset,
        group + 4 * offset,
        numWords,
        dtype === Q8_0 ? -128 : 0,
      );
    }
    b += blockBytes;
    c += blockBytes;
    d += blockBytes;
  }
}

/** A binary16 of each row. */
export function interleaveScales(a: usize, b: usize, c: usize, d: usize, to: usize): void {
  store<u16>(to, load<u16>(a));
  store<u16>(to, load<u16>(b), 2);
  store<u16>(to, load<u16>(c), 4);
  store<u16>(to, load<u16>(d), 6);
  for (const end = to + 8; to < end; to += 2) store<u16>(to, times1024(load<u16>(to)));
}

/** Words of each row, 16 bytes apart; sign bits of whole fours of words flipped by `flip`. */
function interleaveWords(a: usize, b: usize, c: usize, d: usize, to: usize, count: i32, flip: i8): void {
  const flips = i8x16.splat(flip);
  for (; count >= 4; count -= 4, a += 16, b += 16, c += 16, d += 16, to += 64) {
    const first = v128.load(a);
    const second = v128.load(b);
    const third = v128.load(c);
    const fourth = v128.load(d);
    const ab = lowWords(first, second);
    const cd = lowWords(third, fourth);
    v128.store(to, v128.xor(lowTwos(ab, cd), flips));
    v128.store(to, v128.xor(highTwos(ab, cd), flips), 16);
    const ef = highWords(first, second);
    const gh = highWords(third, fourth);
    v128.store(to, v128.xor(lowTwos(ef, gh), flips), 32);
    v128.store(to, v128.xor(highTwos(ef, gh), flips), 48);
  }
  for (; count > 0; count--, a += 4, b += 4, c += 4, d += 4, to += 16) {
    store<u32>(to, load<u32>(a));
    store<u32>(to, load<u32>(b), 4);
    store<u32>(to, load<u32>(c), 8);
    store<u32>(to, load<u32>(d), 12);
  }
}

/** One row of a repacked group as a plain row at `to`. */
export function restoreRow(dtype: i32, group: usize, row: i32, to: usize, count: i32): void {
  const blockBytes = bytesOf(dtype, dtype === Q8_0 || dtype === Q4_0 ? 32 : 256);
  const r2 = (<usize>row) << 1;
  const r4 = (<usize>row) << 2;
  for (const end = to + bytesOf(dtype, count); to < end; to += blockBytes, group += 4 * blockBytes) {
    if (dtype === Q6_K) {
      restoreScale(group + r2, to + 208);
      restoreWords(group + 8 + r4, to + 192, 4, 0);
      restoreWords(group + 72 + r4, to, 48, 0);
    } else {
      let offset: usize = 2;
      restoreScale(group + r2, to);
      if (dtype === Q4_K || dtype === Q5_K) {
        restoreScale(group + 8 + r2, to + 2);
        offset = 4;
      }
      const numWords = <i32>(blockBytes - offset) >> 2;
      restoreWords(group + 4 * offset + r4, to + offset, numWords, dtype === Q8_0 ? 0x80808080 : 0);
    }
  }
}

function restoreScale(packed: usize, plain: usize): void {
  store<u16>(plain, over1024(load<u16>(packed)));
}

/** The binary16 times 2^10, exact: numbers below 64 only. */
function times1024(bits: u32): u32 {
  const magnitude = bits & 0x7fff;
  if (magnitude === 0) return bits;
  if (magnitude >= 0x400) return bits + TEN;
  // a denormal, 2^-24 times its integer, becomes normal
  const top = 31 - clz(magnitude);
  return (bits & 0x8000) | ((top + 1) << 10) | ((magnitude << (10 - top)) & 0x3ff);
}

/** The inverse. */
function over1024(bits: u32): u32 {
  const exponent = (bits >> 10) & 31;
  if ((bits & 0x7fff) === 0) return bits;
  if (exponent > 10) return bits - TEN;
  return (bits & 0x8000) | (((bits & 0x3ff) | 0x400) >> (11 - exponent));
}

/** Words of a row lie 16 bytes apart in the group. */
function restoreWords(packed: usize, plain: usize, count: i32, flip: u32): void {
  for (let i = 0; i < count; i++, packed += 16, plain += 4) store<u32>(plain, load<u32>(packed) ^ flip);
}
