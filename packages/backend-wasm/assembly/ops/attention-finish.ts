/** Turns merged partial states of attention into outputs: `y = o / l`, where l includes the sinks. */
import { finishState } from '../attention/partial-states';
import * as op from '../operands/attention-finish.generated';
import { floatAt } from '../runtime/arrays';
import { nextItems } from '../runtime/threads';

/** Work items: rows (token, head). */
export function attentionFinish(): void {
  const rows = op.y.numTokens * op.y.numHeads;
  const valueDim = op.y.valueDim;
  for (let row = nextItems(1); row < rows; row = nextItems(1)) {
    const at = (<usize>row * <usize>valueDim) << 2;
    let sum = floatAt(op.l.address, row);
    if (op.sinkLogits.isPresent) {
      sum += <f32>Math.exp(<f64>floatAt(op.sinkLogits.address, row % op.y.numHeads) - <f64>floatAt(op.m.address, row));
    }
    finishState(sum, op.o.address + at, op.y.address + at, valueDim);
  }
}
