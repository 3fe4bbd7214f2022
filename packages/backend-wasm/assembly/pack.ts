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
 * 64 and above, Inf or NaN cannot be packed: they stay as they are, and aux 0 of their plan entry says so.
 */
import { Q4_0, Q4_K, Q5_K, Q6_K, Q8_0, bytesOf } from './decode';
import { addressOf, aux, dim, dtypeOf, localScratch, setAux } from './record';
import { phaseBarrier, takeUnits } from './threads';

/** Rows of a group. */
export const GROUP: i32 = 4;

/** Bits of the first magnitude that cannot be packed: 64. */
const TOO_LARGE: u32 = 0x5400;
/** Ten, where a binary16 has its exponent. */
const TEN: u32 = 10 << 10;

/** Interleaves the whole groups of a weight matrix. Units: groups. */
export function packWeights(): void {
  const dtype = dtypeOf(0);
  const numGroups = dim(0, 0) / GROUP;
  const groupBytes = bytesOf(dtype, dim(0, 1)) * GROUP;
  for (let g = takeUnits(1); g < numGroups; g = takeUnits(1)) {
    if (!hasSmallScales(dtype, addressOf(0) + <usize>g * groupBytes, groupBytes)) setAux(0, 1);
  }
  phaseBarrier();
  if (aux(0) == 0) eachGroup(true);
}
export function unpackWeights(): void {
  eachGroup(false);
}

function eachGroup(toPacked: bool): void {
  const dtype = dtypeOf(0);
  const numGroups = dim(0, 0) / GROUP;
  const numInputs = dim(0, 1);
  const rowBytes = bytesOf(dtype, numInputs);
  const groupBytes = rowBytes * GROUP;
  const copy = localScratch();
  for (let g = takeUnits(1); g < numGroups; g = takeUnits(1)) {
    const group = addressOf(0) + <usize>g * groupBytes;
    memory.copy(copy, group, groupBytes);
    for (let row = 0; row < GROUP; row++) {
      const offset = <usize>row * rowBytes;
      if (toPacked) moveRow(dtype, group, copy + offset, row, numInputs, true);
      else moveRow(dtype, copy, group + offset, row, numInputs, false);
    }
  }
}

/** Whether all scales in whole blocks are below 64. */
export function hasSmallScales(dtype: i32, at: usize, sizeBytes: usize): bool {
  const blockBytes = bytesOf(dtype, dtype == Q8_0 || dtype == Q4_0 ? 32 : 256);
  const end = at + sizeBytes;
  if (dtype == Q6_K) at += 208;
  let isSmall = true;
  for (; at < end; at += blockBytes) {
    if ((<u32>load<u16>(at) & 0x7fff) >= TOO_LARGE) isSmall = false;
    if (dtype == Q4_K || dtype == Q5_K) {
      if ((<u32>load<u16>(at, 2) & 0x7fff) >= TOO_LARGE) isSmall = false;
    }
  }
  return isSmall;
}

/** Moves a plain row, or the part of it from a super-block on, into a group as its row `row`. Scales must be small. */
export function packRow(dtype: i32, plain: usize, row: i32, group: usize, count: i32): void {
  moveRow(dtype, group, plain, row, count, true);
}

/** One row of a packed group as a plain row at `to`. */
export function unpackRow(dtype: i32, group: usize, row: i32, to: usize, count: i32): void {
  moveRow(dtype, group, to, row, count, false);
}

/** Moves row `row` between a packed group and a plain row. */
function moveRow(dtype: i32, packed: usize, plain: usize, row: i32, count: i32, toPacked: bool): void {
  const r2 = <usize>row << 1;
  const r4 = <usize>row << 2;
  if (dtype == Q8_0) {
    for (let i = 0; i < count; i += 32, packed += 136, plain += 34) {
      moveHalf(packed + r2, plain, toPacked);
      moveWords(packed + 8 + r4, plain + 2, 8, 0x80808080, toPacked);
    }
  } else if (dtype == Q4_0) {
    for (let i = 0; i < count; i += 32, packed += 72, plain += 18) {
      moveHalf(packed + r2, plain, toPacked);
      moveWords(packed + 8 + r4, plain + 2, 4, 0, toPacked);
    }
  } else if (dtype == Q4_K) {
    for (let i = 0; i < count; i += 256, packed += 576, plain += 144) {
      moveHalf(packed + r2, plain, toPacked);
      moveHalf(packed + 8 + r2, plain + 2, toPacked);
      moveWords(packed + 16 + r4, plain + 4, 35, 0, toPacked);
    }
  } else if (dtype == Q5_K) {
    for (let i = 0; i < count; i += 256, packed += 704, plain += 176) {
      moveHalf(packed + r2, plain, toPacked);
      moveHalf(packed + 8 + r2, plain + 2, toPacked);
      moveWords(packed + 16 + r4, plain + 4, 43, 0, toPacked);
    }
  } else if (dtype == Q6_K) {
    for (let i = 0; i < count; i += 256, packed += 840, plain += 210) {
      moveHalf(packed + r2, plain + 208, toPacked);
      moveWords(packed + 8 + r4, plain + 192, 4, 0, toPacked);
      moveWords(packed + 72 + r4, plain, 48, 0, toPacked);
    }
  } else unreachable();
}

function moveHalf(packed: usize, plain: usize, toPacked: bool): void {
  if (toPacked) store<u16>(packed, times1024(load<u16>(plain)));
  else store<u16>(plain, over1024(load<u16>(packed)));
}

/** The binary16 times 2^10, exact: numbers below 64 only. */
function times1024(bits: u32): u32 {
  const magnitude = bits & 0x7fff;
  if (magnitude == 0) return bits;
  if (magnitude >= 0x400) return bits + TEN;
  // a denormal, 2^-24 times its integer, becomes normal
  const top = 31 - clz(magnitude);
  return (bits & 0x8000) | ((top + 1) << 10) | ((magnitude << (10 - top)) & 0x3ff);
}

/** The inverse. */
function over1024(bits: u32): u32 {
  const exponent = (bits >> 10) & 31;
  if ((bits & 0x7fff) == 0) return bits;
  if (exponent > 10) return bits - TEN;
  return (bits & 0x8000) | (((bits & 0x3ff) | 0x400) >> (11 - exponent));
}

/** Words of a row lie 16 bytes apart in the group. */
function moveWords(packed: usize, plain: usize, count: i32, flip: u32, toPacked: bool): void {
  for (let i = 0; i < count; i++, packed += 16, plain += 4) {
    if (toPacked) store<u32>(packed, load<u32>(plain) ^ flip);
    else store<u32>(plain, load<u32>(packed) ^ flip);
  }
}
