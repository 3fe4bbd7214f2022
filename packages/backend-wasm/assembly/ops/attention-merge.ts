/** Units: rows (token, head). */
import { mergeState } from '../attention/softmax-states';
import { l, l2, lOut, m, m2, mOut, o, o2, oOut } from '../operands/attention-merge.generated';
import { takeUnits } from '../runtime/threads';

export function attentionMerge(): void {
  const numParts = m.numParts;
  const rows = m.numTokens * m.numHeads;
  const valueDim = o.valueDim;
  const hasSecond = m2.isPresent;
  const toM = mOut.address;
  const toL = lOut.address;
  const toO = oOut.address;
  for (let row = takeUnits(1); row < rows; row = takeUnits(1)) {
    store<f32>(toM + ((<usize>row) << 2), -Infinity);
    store<f32>(toL + ((<usize>row) << 2), 0);
    memory.fill(toO + ((<usize>row * <usize>valueDim) << 2), 0, (<usize>valueDim) << 2);
    for (let part = 0; part < numParts; part++) {
      mergeState(toM, toL, toO, row, m.address, l.address, o.address, part * rows + row, valueDim);
    }
    if (!hasSecond) continue;
    for (let part = 0; part < m2.numParts2; part++) {
      mergeState(toM, toL, toO, row, m2.address, l2.address, o2.address, part * rows + row, valueDim);
    }
  }
}
