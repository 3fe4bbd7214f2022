import { attributes, l, m, o } from '../operands/attention-partial.generated';
import { attendStates } from './attention';

export function attentionPartial(): void {
  attendStates(m.address, l.address, o.address, attributes.numParts);
}
