/**
 * Interleaves groups of four rows of a weight in place: vectors hold four columns of each of four rows, so that one 8-bit
 * dot product instruction adds to the sums of four rows. Layouts of a group, per block:
 *   q8_0  [4 d][8 vectors of codes + 128]
 *   q4_0  [4 d][4 vectors of nibbles]
 *   q4_K  [4 d][4 dmin][3 vectors of scales][32 vectors of nibbles]
 *   q5_K  [4 d][4 dmin][3 vectors of scales][8 vectors of fifth bits][32 vectors of nibbles]
 *   q6_K  [4 d][4 vectors of scales][32 vectors of nibbles][16 vectors of bit pairs]
 * Scales d and dmin are multiplied by 2^10, because many of them are denormal as binary16, and a denormal operand of a
 * multiplication costs over a hundred cycles. Rows beyond the last whole group stay unchanged. Weights with a scale of
 * 64 or more, Inf or NaN cannot be repacked: they stay unchanged, and an aux word of their plan entry reports it.
 */
import { Q4_0, Q4_K, Q5_K, Q6_K, Q8_0, bytesOf } from '../quant/dequantize';
import { storeColumns } from '../simd/transpose';
import { weight } from '../operands/repack.generated';
import { GROUP_SIZE, REFUSED_AUX } from '../runtime/layout.generated';
import { aux, localScratch, setAux } from '../runtime/record';
import { phaseBarrier, nextItems } from '../runtime/threads';

/** Bits of the smallest magnitude that cannot be repacked: 64. */
const TOO_LARGE: u32 = 0x5400;
/** Ten in the exponent field of a binary16. */
const TEN: u32 = 10 << 10;

/** Interleaves the whole groups of a weight matrix. Work items: groups. */
export function repackWeights(): void {
  const dtype = weight.dtype;
  const numGroups = weight.numOutputs / GROUP_SIZE;
  const groupBytes = bytesOf(dtype, weight.numInputs) * GROUP_SIZE;
  for (let g = nextItems(1); g < numGroups; g = nextItems(1)) {
    if (!hasSmallScales(dtype, weight.address + <usize>g * groupBytes, groupBytes)) setAux(REFUSED_AUX, 1);
  }
  phaseBarrier();
  if (aux(REFUSED_AUX) === 0) eachGroup(true);
}
export function restoreWeights(): void {
  eachGroup(false);
}

function eachGroup(isRepacking: bool): void {
  const dtype = weight.dtype;
  const numGroups = weight.numOutputs / GROUP_SIZE;
  const numInputs = weight.numInputs;
  const rowBytes = bytesOf(dtype, numInputs);
  const groupBytes = rowBytes * GROUP_SIZE;
  const copy = localScratch();
  for (let g = nextItems(1); g < numGroups; g = nextItems(1)) {
    const group = weight.address + <usize>g * groupBytes;
    memory.copy(copy, group, groupBytes);
    if (isRepacking) {
      interleaveRows(dtype, copy, copy + rowBytes, copy + 2 * rowBytes, copy + 3 * rowBytes, group, numInputs);
      continue;
    }
    for (let row = 0; row < GROUP_SIZE; row++) restoreRow(dtype, copy, row, group + <usize>row * rowBytes, numInputs);
  }
}

// layout of a block of a plain row: scales come first (last in q6_K), then words of codes and of other scales
let layoutDType: i32 = -1;
let blockBytes: usize = 0;
let scalesAt: usize = 0;
let scalesBytes: usize = 0;
let wordsAt: usize = 0;
let numWords: i32 = 0;
let flips: u32 = 0;

function enterLayout(dtype: i32): void {
  if (dtype === layoutDType) return;
  layoutDType = dtype;
  blockBytes = bytesOf(dtype, dtype === Q8_0 || dtype === Q4_0 ? 32 : 256);
  scalesAt = dtype === Q6_K ? 208 : 0;
  scalesBytes = dtype === Q4_K || dtype === Q5_K ? 4 : 2;
  wordsAt = dtype === Q6_K ? 0 : scalesBytes;
  numWords = dtype === Q6_K ? 48 : <i32>(blockBytes - scalesBytes) >> 2;
  flips = dtype === Q8_0 ? 0x80808080 : 0;
}

/** Whether all scales in whole blocks are below 64. */
export function hasSmallScales(dtype: i32, at: usize, sizeBytes: usize): bool {
  enterLayout(dtype);
  const step = blockBytes;
  const second = scalesBytes - 2; // of the only scale itself where a block has no dmin
  let isSmall = true;
  at += scalesAt;
  for (const end = at + sizeBytes; at < end; at += step) {
    if ((<u32>load<u16>(at) & 0x7fff) >= TOO_LARGE) isSmall = false;
    if ((<u32>load<u16>(at + second) & 0x7fff) >= TOO_LARGE) isSmall = false;
  }
  return isSmall;
}

/** Interleaves `count` columns of four rows, starting at a block boundary. Scales must be below 64. */
export function interleaveRows(dtype: i32, a: usize, b: usize, c: usize, d: usize, group: usize, count: i32): void {
  enterLayout(dtype);
  const step = blockBytes;
  const words = wordsAt;
  const count4 = numWords;
  const first = scalesAt;
  const hasMins = scalesBytes === 4;
  for (const end = a + bytesOf(dtype, count); a < end; a += step, b += step, c += step, d += step) {
    interleaveScales(a + first, b + first, c + first, d + first, group);
    if (hasMins) interleaveScales(a + 2, b + 2, c + 2, d + 2, group + 8);
    group += hasMins ? 16 : 8;
    if (dtype === Q6_K) {
      interleaveWords(a + 192, b + 192, c + 192, d + 192, group, 4);
      group += 64;
    }
    interleaveWords(a + words, b + words, c + words, d + words, group, count4);
    group += (<usize>count4) << 4;
  }
}

/** Interleaves one binary16 scale of each row, times 2^10. */
export function interleaveScales(a: usize, b: usize, c: usize, d: usize, to: usize): void {
  store<u16>(to, load<u16>(a));
  store<u16>(to, load<u16>(b), 2);
  store<u16>(to, load<u16>(c), 4);
  store<u16>(to, load<u16>(d), 6);
  for (const end = to + 8; to < end; to += 2) store<u16>(to, times1024(load<u16>(to)));
}

/** Interleaves `count` words of four rows, at least four, so that those of a row are 16 bytes apart. */
function interleaveWords(a: usize, b: usize, c: usize, d: usize, to: usize, count: i32): void {
  const flip = i32x4.splat(flips);
  for (let i = 0; i < count; i += 4) {
    // the last four words may overlap those before them
    const word = <usize>min<i32>(i, count - 4);
    const at = word << 2;
    const first = v128.xor(v128.load(a + at), flip);
    const second = v128.xor(v128.load(b + at), flip);
    const third = v128.xor(v128.load(c + at), flip);
    storeColumns(first, second, third, v128.xor(v128.load(d + at), flip), to + (word << 4), 16, 32);
  }
}

/** Restores one row of a repacked group as a plain row at `to`. */
export function restoreRow(dtype: i32, group: usize, row: i32, to: usize, count: i32): void {
  enterLayout(dtype);
  const lane = (<usize>row) << 2;
  for (const end = to + bytesOf(dtype, count); to < end; to += blockBytes) {
    for (let at = scalesAt; at < scalesAt + scalesBytes; at += 2, group += 8) {
      store<u16>(to + at, over1024(load<u16>(group + (lane >> 1))));
    }
    if (dtype === Q6_K) {
      restoreWords(group + lane, to + 192, 4);
      group += 64;
    }
    restoreWords(group + lane, to + wordsAt, numWords);
    group += (<usize>numWords) << 4;
  }
}

/** A binary16 times 2^10, which is exact for numbers below 64. */
function times1024(bits: u32): u32 {
  const magnitude = bits & 0x7fff;
  if (magnitude === 0) return bits;
  if (magnitude >= 0x400) return bits + TEN;
  // a denormal, 2^-24 times its integer, becomes normal
  const top = 31 - clz(magnitude);
  return (bits & 0x8000) | ((top + 1) << 10) | ((magnitude << (10 - top)) & 0x3ff);
}

/** A binary16 divided by 2^10, the inverse. */
function over1024(bits: u32): u32 {
  const exponent = (bits >> 10) & 31;
  if ((bits & 0x7fff) === 0) return bits;
  if (exponent > 10) return bits - TEN;
  return (bits & 0x8000) | (((bits & 0x3ff) | 0x400) >> (11 - exponent));
}

/** Restores the words of a row, which are 16 bytes apart in the group. */
function restoreWords(packed: usize, plain: usize, count: i32): void {
  for (let i = 0; i < count; i++, packed += 16, plain += 4) store<u32>(plain, load<u32>(packed) ^ flips);
}
