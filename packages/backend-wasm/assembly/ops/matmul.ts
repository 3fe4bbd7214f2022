/** matmul. Work items: runs of output rows. This file handles f32 activations, int8-matmul.ts those in 8 bits. */
import * as panels from '../gemm/f32-panels';
import { matmulInt8 } from '../gemm/int8-matmul';
import { beginTokens, setBias } from '../gemm/tokens';
import { FLAG_INT8 } from '../runtime/layout.generated';
import { bias, weight, x, y } from '../operands/matmul.generated';
import { hasFlag, localScratch, usesGemm } from '../runtime/record';
import { nextItems } from '../runtime/threads';

export function matmul(): void {
  const numTokens = x.numTokens;
  const numOutputs = weight.numOutputs;
  beginTokens(x.address, weight.numInputs, y.address, numOutputs);
  if (bias.isPresent) setBias(bias.address);
  if (hasFlag(FLAG_INT8)) {
    const rest = matmulInt8();
    if (rest < numOutputs) {
      selectRows(rest, numOutputs);
      panels.multiplyFew(0, numTokens);
    }
    return;
  }
  panels.packTokens(numTokens, weight.numInputs);
  const isPanels = usesGemm(numTokens);
  const unit = isPanels ? panels.MC : numOutputs >= 1024 ? 64 : 16;
  for (let begin = nextItems(unit); begin < numOutputs; begin = nextItems(unit)) {
    selectRows(begin, min<i32>(numOutputs, begin + unit));
    if (isPanels) panels.multiplyMany(numTokens);
    else panels.multiplyRuns(0, numTokens);
  }
}

function selectRows(begin: i32, end: i32): void {
  panels.beginRows(localScratch(), weight.dtype, weight.numInputs, begin, end);
  panels.setRowAddresses(weight.address);
}

export function matmulLocalBytes(): u64 {
  return panels.rowsBytes(x.numInputs);
}
export function matmulSharedBytes(): u64 {
  return panels.packedBytes(x.numTokens, x.numInputs);
}
