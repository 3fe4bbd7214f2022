/** Units: KV heads. */
import { summarize } from '../attention/block-summaries';
import { keys } from '../operands/block-box-append.generated';
import { takeUnits } from '../runtime/threads';

export function blockBoxAppend(): void {
  const numHeads = keys.numKvHeads;
  for (let head = takeUnits(1); head < numHeads; head = takeUnits(1)) summarize(head, true);
}
