/**
 * The three rows of a neuron in another order, in the same bytes, so that fewer instructions read them. Every row of E columns:
 *   [E / 128] of [4 scales][codes of four blocks].
 * Codes of gate and up go by vectors of 16 bytes, each with the next four bytes of all four blocks; codes of down block by block.
 * Codes of q8_0 have 128 added. Rows of q8_0 and q4_0, whole fours of blocks.
 */
import { Q4_0, bytesOf } from './decode';
import { addressOf, dim, dtypeOf, localScratch, setAux } from './record';
import { isExactForU8 } from './dots8';
import { takeUnits } from './threads';

// while matrices are read one by one: which row of the records, or -1 where rows lie as in files, and where to put them
let rowOfRecords: i32 = -1;
let plainAt: usize = 0;

/** From here on `plainColumns` finds row `row` of records; -1 for rows as they lie in files. */
export function readRecords(row: i32, scratch: usize): void {
  rowOfRecords = row;
  plainAt = scratch;
}

/**
 * Where columns `[k, k + count)` of a row are as in files. The row, or the record that it is part of, begins at `at`; what has to be
 * put in order again goes to byte `slot` of the scratch.
 */
export function plainColumns(dtype: i32, at: usize, width: i32, k: i32, count: i32, slot: usize): usize {
  if (!ASC_FEATURE_RELAXED_SIMD || rowOfRecords < 0) return at + bytesOf(dtype, k);
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
  if (fits) eachNeuron(true);
  else setAux(0, 1);
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
  const flip: u32 = isQ4 ? 0 : 0x80808080;
  // from one piece of four bytes of a block to the next
  const step: usize = row == 2 ? 4 : 16;
  const lane: usize = row == 2 ? size : 4;
  const start = record + <usize>(row * numBlocks) * (2 + size);
  for (let block = <usize>first; block < <usize>(first + count); block++, plain += 2 + size) {
    const four = start + (block >> 2) * (8 + 4 * size);
    const scale = four + ((block & 3) << 1);
    let codes = four + 8 + (block & 3) * lane;
    if (toPacked) store<u16>(scale, load<u16>(plain));
    else store<u16>(plain, load<u16>(scale));
    for (let i: usize = 0; i < size; i += 4, codes += step) {
      if (toPacked) store<u32>(codes, load<u32>(plain + i, 2) ^ flip);
      else store<u32>(plain + i, load<u32>(codes) ^ flip, 2);
    }
  }
}
