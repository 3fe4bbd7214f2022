/** Turns merged partial states of attention into outputs: `y = o / l`. */
import { finishState } from '../attention/partial-states';
import * as op from '../operands/attention-finish.generated';
import { nextItems } from '../runtime/threads';

/** Work items: rows (token, head). */
export function attentionFinish(): void {
  const rows = op.y.numTokens * op.y.numHeads;
  const valueDim = op.y.valueDim;
  for (let row = nextItems(1); row < rows; row = nextItems(1)) {
    const at = (<usize>row * <usize>valueDim) << 2;
    finishState(load<f32>(op.l.address + ((<usize>row) << 2)), op.o.address + at, op.y.address + at, valueDim);
  }
}
