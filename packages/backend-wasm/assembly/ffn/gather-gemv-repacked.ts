/** Gather-GEMV over eight repacked rows (see repack-neurons.ts): the numbers of `gatherGemv`, bit by bit. Relaxed builds only. */
import { hasMaddubs, hasUsdot } from '../gemm/int8-dot';
import { gatherGemvQ4, gatherGemvQ8 } from './gather-gemv.generated';
import { lanesBytes } from './repacked-lanes';

/** The sums of eight rows at `sums[row][4]`, to be finished by `fourSums`. They begin `offset` bytes behind the addresses at `rows`. */
export function gatherGemvRepacked(
  isQ4: bool,
  rows: usize,
  offset: usize,
  x: usize,
  numBlocks: i32,
  sums: usize,
): void {
  const none = f32x4.splat(0);
  for (let at = sums; at < sums + 128; at += 32) {
    v128.store(at, none);
    v128.store(at, none, 16);
  }
  const end = x + lanesBytes(isQ4, numBlocks);
  if (isQ4) {
    if (hasMaddubs()) gatherGemvQ4<i16>(rows, offset, x, end, sums);
    else gatherGemvQ4<i32>(rows, offset, x, end, sums);
  } else if (hasUsdot()) gatherGemvQ8<u8>(rows, offset, x, end, sums);
  else if (hasMaddubs()) gatherGemvQ8<i16>(rows, offset, x, end, sums);
  else gatherGemvQ8<i32>(rows, offset, x, end, sums);
}
