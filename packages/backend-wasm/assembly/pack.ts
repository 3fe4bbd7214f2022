/**
 * Weights with the rows of a group of four interleaved, in the same bytes: vectors hold four columns of each of four rows,
 * so that one 8-bit dot product instruction adds to the sums of four rows. Layouts of a group, per block:
 *   q8_0  [4 d][8 vectors of codes + 128]
 *   q4_0  [4 d][4 vectors of nibbles]
 *   q4_K  [4 d][4 dmin][3 vectors of scales][32 vectors of nibbles]
 *   q5_K  [4 d][4 dmin][3 vectors of scales][8 vectors of fifth bits][32 vectors of nibbles]
 *   q6_K  [4 d][4 vectors of scales][32 vectors of nibbles][16 vectors of bit pairs]
 * Rows beyond the last whole group stay as they are. Weights with a scale that is Inf or NaN are reported by aux 0 of their
 * plan entry and have to be unpacked again.
 */
import { Q4_0, Q4_K, Q5_K, Q6_K, Q8_0, bytesOf } from './decode';
import { addressOf, dim, dtypeOf, localScratch, setAux } from './record';
import { takeUnits } from './threads';

/** Rows of a group. */
export const GROUP: i32 = 4;

/** Interleaves the whole groups of a weight matrix. Units: groups. */
export function packWeights(): void {
  eachGroup(true);
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
  if (toPacked) {
    const bits = load<u16>(plain);
    // kernels take scales to be finite: the host learns that these are not
    if ((bits & 0x7c00) == 0x7c00) setAux(0, 1);
    store<u16>(packed, bits);
  } else store<u16>(plain, load<u16>(packed));
}

/** Words of a row lie 16 bytes apart in the group. */
function moveWords(packed: usize, plain: usize, count: i32, flip: u32, toPacked: bool): void {
  for (let i = 0; i < count; i++, packed += 16, plain += 4) {
    if (toPacked) store<u32>(packed, load<u32>(plain) ^ flip);
    else store<u32>(plain, load<u32>(packed) ^ flip);
  }
}
