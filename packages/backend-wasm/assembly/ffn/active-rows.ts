/** Active rows of a sparse matmul: their addresses, their biases, and the outputs beyond them. */
import { beginRows, setRowAddress } from '../gemm/f32-panels';
import { beginTokens, setBias } from '../gemm/tokens';
import { bias, count, ids, rows, weight, x, y } from '../operands/sparse-matmul.generated';
import { bytesOf } from '../quant/dequantize';
import { MIN_PANEL_TOKENS } from '../runtime/layout.generated';
import { localScratch, strideOf } from '../runtime/record';
import { nextItems } from '../runtime/threads';

/** Scratch for the biases of a work item, ahead of all other scratch. */
export const biasBytes: u64 = 256;

/** Number of active rows. */
export function activeCount(): i32 {
  return load<i32>(count.address);
}

export function beginActive(): void {
  beginTokens(x.address, x.dim, y.address, rows.maxActive);
}

/** This thread's scratch after the biases. */
export function activeScratch(): usize {
  return localScratch() + <usize>biasBytes;
}

/** Address of the active row `j` of the weight. */
export function activeRow(j: i32, rowBytes: usize): usize {
  return weight.address + <usize>load<u32>(rows.address + ((<usize>j) << 2)) * strideOf(rowBytes);
}

/** Gathers the biases of the neurons of outputs `[begin, end)`, at most 64. */
export function gatherBias(begin: i32, end: i32): void {
  if (!bias.isPresent) return;
  const neurons = ids.isPresent ? ids.address : rows.address;
  const from = localScratch() - ((<usize>begin) << 2);
  for (let j = begin; j < end; j++) {
    const at = (<usize>j) << 2;
    store<f32>(from + at, load<f32>(bias.address + ((<usize>load<u32>(neurons + at)) << 2)));
  }
  setBias(from);
}

/** Selects the active rows `[begin, end)` for an f32 matmul and gathers their biases. */
export function selectActive(begin: i32, end: i32): void {
  const rowBytes = bytesOf(weight.dtype, x.dim);
  gatherBias(begin, end);
  beginRows(activeScratch(), weight.dtype, x.dim, begin, end);
  for (let j = begin; j < end; j++) setRowAddress(j, activeRow(j, rowBytes));
}

/**
 * Zeroes the outputs beyond the active rows. `begin` is the first work item beyond them that this thread got. For a few tokens,
 * the thread that got the very first of these work items clears everything.
 */
export function clearRest(begin: i32, numActive: i32, unit: i32): void {
  const end = rows.maxActive;
  const first = ((numActive + unit - 1) / unit) * unit;
  const isLittle = x.numTokens < MIN_PANEL_TOKENS;
  if (begin === first) clearColumns(numActive, isLittle ? end : min<i32>(first, end));
  if (isLittle) return;
  for (; begin < end; begin = nextItems(unit)) clearColumns(begin, min<i32>(end, begin + unit));
}

function clearColumns(begin: i32, end: i32): void {
  for (let t = 0; t < x.numTokens; t++) {
    const at = y.address + ((<usize>t * <usize>rows.maxActive + <usize>begin) << 2);
    memory.fill(at, 0, (<usize>(end - begin)) << 2);
  }
}
