/** sparse-matmul. Work items: runs of active rows. f32 activations here, 8-bit ones in sparse-matmul-int8.ts. */
import { activeCount, beginActive, biasBytes, clearRest, selectActive } from '../ffn/active-rows';
import { gatheredInt8Bytes, sparseMatmulInt8 } from '../ffn/sparse-matmul-int8';
import { MC, multiplyFew, multiplyMany, packedBytes, packTokens, rowsBytes } from '../gemm/f32-panels';
import { weight, x } from '../operands/sparse-matmul.generated';
import { FLAG_INT8 } from '../runtime/layout.generated';
import { hasFlag, usesGemm } from '../runtime/record';
import { nextItems } from '../runtime/threads';

export function sparseMatmul(): void {
  const numTokens = x.numTokens;
  const numActive = activeCount();
  beginActive();
  if (hasFlag(FLAG_INT8)) {
    sparseMatmulInt8();
    return;
  }
  packTokens(numTokens, x.dim);
  const isPanels = usesGemm(numTokens);
  const unit = isPanels || numActive >= 1024 ? MC : 8;
  let begin = nextItems(unit);
  for (; begin < numActive; begin = nextItems(unit)) {
    selectActive(begin, min<i32>(numActive, begin + unit));
    if (isPanels) multiplyMany(numTokens);
    else multiplyFew(0, numTokens);
  }
  clearRest(begin, numActive, unit);
}

/** Per-thread scratch of gather-GEMM with rows of `width` columns; activations may stay in f32 even if the flag asks for int8. */
export function gatheredGemmBytes(dtype: i32, width: i32): u64 {
  const floats = rowsBytes(width);
  return biasBytes + (hasFlag(FLAG_INT8) ? max<u64>(floats, gatheredInt8Bytes(dtype, width)) : floats);
}

export function sparseMatmulLocalBytes(): u64 {
  return gatheredGemmBytes(weight.dtype, weight.dim);
}
export function sparseMatmulSharedBytes(): u64 {
  return packedBytes(x.numTokens, x.dim);
}
