import { bytesOf, dequantize } from '../quant/dequantize';
import { addressOf, attributeF, dim, dtypeOf, hasFlag, localScratch } from '../runtime/record';
import { takeUnits } from '../runtime/threads';
import { FLAG_REPACKED } from '../runtime/layout.generated';
import { scaleRow } from './pointwise';
import { unpackRow } from '../gemm/repack';

/** Tensors: table, tokens, y. Units: tokens. */
export function embeddingLookup(): void {
  const table = addressOf(0);
  const dtype = dtypeOf(0);
  const tokens = addressOf(1);
  const numTokens = dim(1, 0);
  const y = addressOf(2);
  const hiddenDim = dim(0, 1);
  const scale = attributeF(0);
  const rowBytes = bytesOf(dtype, hiddenDim);
  const packed = hasFlag(FLAG_REPACKED);
  for (let t = takeUnits(1); t < numTokens; t = takeUnits(1)) {
    const token = <usize>load<u32>(tokens + ((<usize>t) << 2));
    const out = y + ((<usize>t * <usize>hiddenDim) << 2);
    let row = table + token * rowBytes;
    if (packed && token < <usize>(dim(0, 0) & ~3)) {
      row = localScratch();
      unpackRow(dtype, table + (token >> 2) * 4 * rowBytes, <i32>(token & 3), row, hiddenDim);
    }
    dequantize(dtype, row, out, hiddenDim);
    if (scale !== 1) scaleRow(out, out, scale, hiddenDim);
  }
}
