/**
 * Repacks the three rows of a neuron in place, so that kernels read them with fewer instructions. Every row of E columns becomes
 *   [E / NEURON_COLUMNS] of [4 scales][codes of four blocks].
 * Codes of gate and up are in vectors of 16 bytes, each with the next four bytes of all four blocks; those of down are in block
 * order. Codes of q8_0 have 128 added. Rows are q8_0 or q4_0 with a multiple of four blocks. Weights with a scale of 64 or more,
 * Inf or NaN stay unchanged, as in repack.ts.
 */
import { Q4_0, Q4_0_BLOCK_BYTES, Q8_0_BLOCK_BYTES, bytesOf } from '../quant/dequantize';
import { storeColumns } from '../simd/transpose';
import { hasSmallScales, interleaveScales } from '../gemm/repack';
import { neurons } from '../operands/repack-neurons.generated';
import { REFUSED_AUX } from '../runtime/layout.generated';
import { aux, localScratch, neuronMatrix, setAux } from '../runtime/record';
import { phaseBarrier, nextItems } from '../runtime/threads';

/** Whether rows are those of repacked neurons, with small scales; only ops for four or more tokens read single matrices of them. */
export function readsRepacked(): bool {
  return ASC_FEATURE_RELAXED_SIMD && neuronMatrix() >= 0;
}

/** Address of the four blocks from block `first` on in a repacked neuron with rows of `numBlocks` blocks. */
export function foursOf(isQ4: bool, neuron: usize, numBlocks: i32, first: i32): usize {
  return neuron + <usize>(neuronMatrix() * numBlocks + first) * blockBytesOf(isQ4);
}

/**
 * Interleaves `numBlocks` blocks, a multiple of four, of gate or up of four neurons as `interleaveRows` does: vectors with four
 * columns of four blocks become vectors with four columns of four rows. a to d are the addresses of the first blocks.
 */
export function interleaveRepacked(
  isQ4: bool,
  a: usize,
  b: usize,
  c: usize,
  d: usize,
  group: usize,
  numBlocks: i32,
): void {
  const fourBytes = 4 * blockBytesOf(isQ4);
  for (let i = numBlocks >> 2; i > 0; i--, group += 3 * fourBytes) {
    const end = a + fourBytes;
    for (let block: usize = 0; block < 4; block++) {
      const at = block << 1;
      interleaveScales(a + at, b + at, c + at, d + at, group + block * fourBytes);
    }
    group += 8;
    for (let at: usize = 8; a + at < end; at += 16, group += 16) {
      storeColumns(
        v128.load(a + at),
        v128.load(b + at),
        v128.load(c + at),
        v128.load(d + at),
        group,
        fourBytes,
        2 * fourBytes,
      );
    }
    a = end;
    b += fourBytes;
    c += fourBytes;
    d += fourBytes;
  }
}

/* @inline */ function blockBytesOf(isQ4: bool): usize {
  return isQ4 ? Q4_0_BLOCK_BYTES : Q8_0_BLOCK_BYTES;
}

/** Repacks neurons. Work items: neurons. */
export function repackNeurons(): void {
  if (!ASC_FEATURE_RELAXED_SIMD) {
    setAux(REFUSED_AUX, 1);
    return;
  }
  const numNeurons = neurons.numNeurons;
  const neuronBytes = bytesOf(neurons.dtype, neurons.numColumns);
  for (let f = nextItems(1); f < numNeurons; f = nextItems(1)) {
    if (!hasSmallScales(neurons.dtype, neurons.address + <usize>f * neuronBytes, neuronBytes)) setAux(REFUSED_AUX, 1);
  }
  phaseBarrier();
  if (aux(REFUSED_AUX) === 0) eachNeuron(true);
}
export function restoreNeurons(): void {
  if (ASC_FEATURE_RELAXED_SIMD) eachNeuron(false);
}

function eachNeuron(isRepacking: bool): void {
  const isQ4 = neurons.dtype === Q4_0;
  const numNeurons = neurons.numNeurons;
  const neuronBytes = bytesOf(neurons.dtype, neurons.numColumns);
  const numBlocks = neurons.numColumns / (3 * 32);
  const copy = localScratch();
  for (let f = nextItems(8); f < numNeurons; f = nextItems(8)) {
    const end = min<i32>(numNeurons, f + 8);
    for (let i = f; i < end; i++) {
      const at = neurons.address + <usize>i * neuronBytes;
      memory.copy(copy, at, neuronBytes);
      for (let row = 0; row < 3; row++) {
        const offset = <usize>row * <usize>numBlocks * blockBytesOf(isQ4);
        if (isRepacking) moveRow(isQ4, row === 2, at + offset, copy + offset, numBlocks, true);
        else moveRow(isQ4, row === 2, copy + offset, at + offset, numBlocks, false);
      }
    }
  }
}

/** Moves a row between its place `four` in a repacked neuron and a plain one. */
function moveRow(isQ4: bool, isDown: bool, four: usize, plain: usize, numBlocks: i32, isRepacking: bool): void {
  const blockBytes = blockBytesOf(isQ4);
  const size = blockBytes - 2; // of the codes
  const flip = i8x16.splat(isQ4 ? 0 : -128);
  // bytes between the four vectors that are moved together, and between the halves of the codes
  const step: usize = isDown ? size : 16;
  const half: usize = isDown ? 16 : 64;
  const fromStep = isRepacking ? blockBytes : step;
  const toStep = isRepacking ? step : blockBytes;
  for (let i = numBlocks >> 2; i > 0; i--, four += 4 * blockBytes, plain += 4 * blockBytes) {
    for (let block: usize = 0; block < 4; block++) {
      const at = plain + block * blockBytes;
      if (isRepacking) store<u16>(four + (block << 1), load<u16>(at));
      else store<u16>(at, load<u16>(four + (block << 1)));
    }
    let codes = four + 8;
    for (let at: usize = 2; at < blockBytes; at += 16, codes += half) {
      const from = isRepacking ? plain + at : codes;
      const to = isRepacking ? codes : plain + at;
      const a = v128.xor(v128.load(from), flip);
      const b = v128.xor(v128.load(from + fromStep), flip);
      const c = v128.xor(v128.load(from + 2 * fromStep), flip);
      const d = v128.xor(v128.load(from + 3 * fromStep), flip);
      if (isDown) {
        v128.store(to, a);
        v128.store(to + toStep, b);
        v128.store(to + 2 * toStep, c);
        v128.store(to + 3 * toStep, d);
        // a 4x4 transpose of words, which is its own inverse
      } else storeColumns(a, b, c, d, to, toStep, 2 * toStep);
    }
  }
}
