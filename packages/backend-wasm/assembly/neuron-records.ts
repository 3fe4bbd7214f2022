/**
 * The three rows of a neuron in another order, in the same bytes, so that fewer instructions read them. Every row of E columns:
 *   [E / 128] of [4 scales][codes of four blocks].
 * Codes of gate and up go by vectors of 16 bytes, each with the next four bytes of all four blocks; codes of down block by block.
 * Codes of q8_0 have 128 added. Rows of q8_0 and q4_0, whole fours of blocks. Weights with a scale of 64 and above, Inf or NaN stay as
 * they are, as in pack.ts.
 */
import { Q4_0, bytesOf } from './decode';
import { isExactForU8 } from './dots8';
import { hasSmallScales } from './pack';
import { addressOf, aux, dim, dtypeOf, localScratch, setAux } from './record';
import { phaseBarrier, takeUnits } from './threads';

// while matrices are read one by one: which row of the records, or -1 where rows lie as in files, and where to put them
let rowOfRecords: i32 = -1;
let plainAt: usize = 0;

/** From here on `plainColumns` finds row `row` of records; -1 for rows as they lie in files. */
export function readRecords(row: i32, scratch: usize): void {
  rowOfRecords = row;
  plainAt = scratch;
}

/** Whether rows are those of records, whose scales are known to be small. */
export function readsRecords(): bool {
  return ASC_FEATURE_RELAXED_SIMD && rowOfRecords >= 0;
}

/**
 * Where columns `[k, k + count)` of a row are as in files, whole fours of blocks of records. The row, or the record that it is part of, begins at `at`; what has to be
 * put in order again goes to byte `slot` of the scratch.
 */
export function plainColumns(dtype: i32, at: usize, width: i32, k: i32, count: i32, slot: usize): usize {
  if (!readsRecords()) return at + bytesOf(dtype, k);
  const to = plainAt + slot;
  moveBlocks(dtype == Q4_0, rowOfRecords, width >> 5, k >> 5, count >> 5, at, to, false);
  return to;
}

/** Bytes of the codes of a block. */
@inline
function codeBytes(isQ4: bool): usize {
  return isQ4 ? 16 : 32;
}

/** Brings neurons into this order. Tensor 0: a matrix with one row of `3 E` values per neuron. Units: neurons. */
export function packNeurons(): void {
  let fits = false;
  if (ASC_FEATURE_RELAXED_SIMD) fits = dtypeOf(0) == Q4_0 || isExactForU8();
  if (!fits) {
    setAux(0, 1);
    return;
  }
  const numNeurons = dim(0, 0);
  const recordBytes = bytesOf(dtypeOf(0), dim(0, 1));
  for (let f = takeUnits(1); f < numNeurons; f = takeUnits(1)) {
    if (!hasSmallScales(dtypeOf(0), addressOf(0) + <usize>f * recordBytes, recordBytes)) setAux(0, 1);
  }
  phaseBarrier();
  if (aux(0) == 0) eachNeuron(true);
}
export function unpackNeurons(): void {
  if (ASC_FEATURE_RELAXED_SIMD) eachNeuron(false);
}

function eachNeuron(toPacked: bool): void {
  const isQ4 = dtypeOf(0) == Q4_0;
  const numNeurons = dim(0, 0);
  const recordBytes = bytesOf(dtypeOf(0), dim(0, 1));
  const numBlocks = dim(0, 1) / 96;
  const copy = localScratch();
  for (let f = takeUnits(8); f < numNeurons; f = takeUnits(8)) {
    const end = min<i32>(numNeurons, f + 8);
    for (let i = f; i < end; i++) {
      const at = addressOf(0) + <usize>i * recordBytes;
      memory.copy(copy, at, recordBytes);
      for (let row = 0; row < 3; row++) {
        const offset = <usize>row * <usize>numBlocks * (2 + codeBytes(isQ4));
        if (toPacked) moveBlocks(isQ4, row, numBlocks, 0, numBlocks, at, copy + offset, true);
        else moveBlocks(isQ4, row, numBlocks, 0, numBlocks, copy, at + offset, false);
      }
    }
  }
}

/** Moves blocks `[first, first + count)` of row 0, 1 or 2 between a record of `numBlocks` and a plain row. */
function moveBlocks(
  isQ4: bool,
  row: i32,
  numBlocks: i32,
  first: i32,
  count: i32,
  record: usize,
  plain: usize,
  toPacked: bool,
): void {
  const size = codeBytes(isQ4);
  const blockBytes: usize = size + 2;
  const flip = i8x16.splat(isQ4 ? 0 : -128);
  // from one vector of a block, or of four blocks, to the next, and from one half of the codes to the other
  const step: usize = row == 2 ? size : 16;
  const half: usize = row == 2 ? 16 : 64;
  let four = record + <usize>(row * numBlocks + first) * blockBytes;
  for (let i = count >> 2; i > 0; i--, four += 4 * blockBytes, plain += 4 * blockBytes) {
    const second = plain + blockBytes;
    const third = second + blockBytes;
    const fourth = third + blockBytes;
    for (let block: usize = 0; block < 4; block++) {
      const at = plain + block * blockBytes;
      if (toPacked) store<u16>(four + (block << 1), load<u16>(at));
      else store<u16>(at, load<u16>(four + (block << 1)));
    }
    let codes = four + 8;
    for (let from: usize = 2; from < blockBytes; from += 16, codes += half) {
      let a = v128.load(toPacked ? plain + from : codes);
      let b = v128.load(toPacked ? second + from : codes + step);
      let c = v128.load(toPacked ? third + from : codes + 2 * step);
      let d = v128.load(toPacked ? fourth + from : codes + 3 * step);
      if (row != 2) {
        // four bytes of each by four: the same there and back
        const ab = i8x16.shuffle(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
        const cd = i8x16.shuffle(c, d, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
        const ef = i8x16.shuffle(a, b, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
        const gh = i8x16.shuffle(c, d, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
        a = i8x16.shuffle(ab, cd, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
        b = i8x16.shuffle(ab, cd, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
        c = i8x16.shuffle(ef, gh, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
        d = i8x16.shuffle(ef, gh, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
      }
      v128.store(toPacked ? codes : plain + from, v128.xor(a, flip));
      v128.store(toPacked ? codes + step : second + from, v128.xor(b, flip));
      v128.store(toPacked ? codes + 2 * step : third + from, v128.xor(c, flip));
      v128.store(toPacked ? codes + 3 * step : fourth + from, v128.xor(d, flip));
    }
  }
}
