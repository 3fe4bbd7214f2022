/**
 * The selective scan of state-space layers. A work item is a block of rows of a head's state matrix, for all tokens of the
 * step, so that the block stays in the L1 cache.
 */
import { carryState, nextRun, openRuns, runBegin, runEnd, stateTo } from '../attention/state-runs';
import * as op from '../operands/selective-scan.generated';
import { floatAt, setFloat } from '../runtime/arrays';
import { localScratch } from '../runtime/record';
import { nextItems } from '../runtime/threads';
import { softplus } from '../simd/softplus';
import { fma, sum4 } from '../simd/vector';

/** Rows of a work item. */
const ROWS: i32 = 32;

export function selectiveScan(): void {
  const headDim = op.state.headDim;
  const perHead = (headDim + ROWS - 1) / ROWS;
  for (let item = nextItems(1); item < op.state.numHeads * perHead; item = nextItems(1)) {
    const begin = (item % perHead) * ROWS;
    openRuns(op.sequences.address, op.stateFrom.address, op.stateTo.address, op.x.numTokens);
    while (nextRun()) scanRows(item / perHead, begin, min<i32>(ROWS, headDim - begin));
  }
}

/** Updates rows `[begin, begin + count)` of the state of `head` with the run of tokens. */
function scanRows(head: i32, begin: i32, count: i32): void {
  const numHeads = op.state.numHeads;
  const headDim = op.state.headDim;
  const rowBytes = (<usize>op.state.stateDim) << 2;
  const offset = <usize>(head * headDim + begin) * rowBytes;
  carryState(op.state.address, <usize>(numHeads * headDim) * rowBytes, offset, <usize>count * rowBytes);
  const rows = op.state.address + <usize>(stateTo * numHeads * headDim) * rowBytes + offset;
  const group = (head * op.b.numGroups) / numHeads;
  const bias: f64 = op.dtBias.isPresent ? <f64>floatAt(op.dtBias.address, head) : 0;
  const skip = floatAt(op.skip.address, head);
  for (let t = runBegin; t < runEnd; t++) {
    const step = softplus(<f64>floatAt(op.dt.address, t * numHeads + head) + bias);
    const decays = fillDecays(head, step);
    const columns = <usize>(t * op.b.numGroups + group) * rowBytes;
    const at = (<usize>((t * numHeads + head) * headDim + begin)) << 2;
    for (let i = 0; i < count; i++) {
      const x = floatAt(op.x.address + at, i);
      const sum = scanRow(rows + <usize>i * rowBytes, decays, columns, <f32>(step * <f64>x));
      setFloat(op.y.address + at, i, sum + skip * x);
    }
  }
}

/** The factors of the columns of a row of the state, in scratch. */
function fillDecays(head: i32, step: f64): usize {
  const decays = localScratch();
  const numDecays = op.decay.numDecays;
  let value: f32 = 0;
  for (let j = 0; j < op.state.stateDim; j++) {
    if (j < numDecays) value = <f32>Math.exp(step * <f64>floatAt(op.decay.address, head * numDecays + j));
    setFloat(decays, j, value);
  }
  return decays;
}

/** Updates a row of the state and returns its product with c; `columns` is the offset of the token's group in b and c. */
function scanRow(row: usize, decays: usize, columns: usize, input: f32): f32 {
  let b = op.b.address + columns;
  let c = op.c.address + columns;
  const inputs = f32x4.splat(input);
  let sums = f32x4.splat(0);
  let j = op.state.stateDim;
  for (; j >= 4; j -= 4, row += 16, decays += 16, b += 16, c += 16) {
    const value = fma(v128.load(row), v128.load(decays), f32x4.mul(inputs, v128.load(b)));
    v128.store(row, value);
    sums = fma(value, v128.load(c), sums);
  }
  let sum = sum4(sums);
  for (; j > 0; j--, row += 4, decays += 4, b += 4, c += 4) {
    const value = load<f32>(row) * load<f32>(decays) + input * load<f32>(b);
    store<f32>(row, value);
    sum += value * load<f32>(c);
  }
  return sum;
}

/** The factors of the columns of a row. */
export function selectiveScanLocalBytes(): u64 {
  return (<u64>op.state.stateDim) << 2;
}
