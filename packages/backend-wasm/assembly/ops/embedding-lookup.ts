import { bytesOf, dequantize } from '../quant/dequantize';
import { attributes, table, tokens, y } from '../operands/embedding-lookup.generated';
import { intAt } from '../runtime/arrays';
import { hasFlag, localScratch } from '../runtime/record';
import { nextItems } from '../runtime/threads';
import { FLAG_REPACKED, GROUP_SIZE } from '../runtime/layout.generated';
import { scaleRow } from './pointwise';
import { restoreRow } from '../gemm/repack';

/** Work items: tokens. */
export function embeddingLookup(): void {
  const rowBytes = bytesOf(table.dtype, table.dim);
  const numRepacked = hasFlag(FLAG_REPACKED) ? table.vocabSize & -GROUP_SIZE : 0;
  for (let t = nextItems(1); t < tokens.numTokens; t = nextItems(1)) {
    const token = intAt(tokens.address, t);
    const out = y.rowAt(t);
    let row = table.address + <usize>token * rowBytes;
    if (token < numRepacked) {
      const lane = token % GROUP_SIZE;
      row = localScratch();
      restoreRow(table.dtype, table.address + <usize>(token - lane) * rowBytes, lane, row, table.dim);
    }
    dequantize(table.dtype, row, out, table.dim);
    if (attributes.scale !== 1) scaleRow(out, out, attributes.scale, table.dim);
  }
}

/** Scratch for a row that is restored from repacked weights. */
export function embeddingLookupLocalBytes(): u64 {
  return (<u64>table.dim) << 2;
}
