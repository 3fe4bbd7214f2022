/** Units: rows (token, head). */
import { finishRow } from '../attention/softmax-states';
import { l, o, y } from '../operands/attention-finish.generated';
import { takeUnits } from '../runtime/threads';

export function attentionFinish(): void {
  const rows = y.numTokens * y.numHeads;
  const valueDim = y.valueDim;
  for (let row = takeUnits(1); row < rows; row = takeUnits(1)) {
    finishRow(0, l.address, o.address, row, y.address, valueDim);
  }
}
