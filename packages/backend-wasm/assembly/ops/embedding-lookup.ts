import { bytesOf, dequantize } from '../quant/dequantize';
import { attributes, table, tokens, y } from '../operands/embedding-lookup.generated';
import { hasFlag, localScratch } from '../runtime/record';
import { nextItems } from '../runtime/threads';
import { FLAG_REPACKED } from '../runtime/layout.generated';
import { scaleRow } from './pointwise';
import { restoreRow } from '../gemm/repack';

/** Work items: tokens. */
export function embeddingLookup(): void {
  const dtype = table.dtype;
  const list = tokens.address;
  const numTokens = tokens.numTokens;
  const hiddenDim = table.dim;
  const scale = attributes.scale;
  const rowBytes = bytesOf(dtype, hiddenDim);
  const isRepacked = hasFlag(FLAG_REPACKED);
  for (let t = nextItems(1); t < numTokens; t = nextItems(1)) {
    const token = <usize>load<u32>(list + ((<usize>t) << 2));
    const out = y.address + ((<usize>t * <usize>hiddenDim) << 2);
    let row = table.address + token * rowBytes;
    if (isRepacked && token < <usize>(table.vocabSize & ~3)) {
      row = localScratch();
      restoreRow(dtype, table.address + (token >> 2) * 4 * rowBytes, <i32>(token & 3), row, hiddenDim);
    }
    dequantize(dtype, row, out, hiddenDim);
    if (scale !== 1) scaleRow(out, out, scale, hiddenDim);
  }
}

/** A row of repacked weights. */
export function embeddingLookupLocalBytes(): u64 {
  return (<u64>table.dim) << 2;
}
