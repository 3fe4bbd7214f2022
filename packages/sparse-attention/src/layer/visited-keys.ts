/** Which keys a query attended to: by the rule of its policy, or by the probabilities that the op reports. */
import { sinksAndWindow } from '@winnow/ops';
import { streamingAttributes } from '../lowering/lower-policy.js';
import { subquadraticKeys, type QueryKeys } from '../lowering/subquadratic.js';
import { deltaOf } from '../policy/fields.js';
import type { AttentionPolicy } from '../policy/kinds.js';

const noBlocks = new Int32Array(0);

/** Whether each query head selects its own keys; otherwise the heads of a KV head share them. */
export function choosesPerHead(policy: AttentionPolicy): boolean {
  return policy.kind === 'oracle-topk' || (policy.kind === 'sparq' && !policy.grouped);
}

/** Whether the keys of a query depend only on positions, so that all heads share them. */
export function isPositional({ kind }: AttentionPolicy): boolean {
  return kind === 'dense' || kind === 'streaming' || kind === 'subquadratic';
}

/** The keys of a query under a policy whose keys depend on positions only; bidirectional unless `causal`. */
export function positionalKeys(policy: AttentionPolicy, position: number, seqLen: number, causal: boolean): QueryKeys {
  const isAnchor = deltaOf(policy) > 0 && position % deltaOf(policy) === 0;
  if (policy.kind === 'subquadratic' && !isAnchor) return subquadraticKeys(policy, position, seqLen, { causal });
  const numVisible = causal ? position + 1 : seqLen;
  const isKey = policy.kind === 'streaming' && !isAnchor ? sinksAndWindow(streamingAttributes(policy)) : () => true;
  const tokens: number[] = [];
  for (let j = 0; j < numVisible; j++) if (isKey(position, j)) tokens.push(j);
  return { tokens: Int32Array.from(tokens), blocks: noBlocks };
}

/** The keys of a query by their probabilities; whole pages if the policy attends to pages. */
export function chosenKeys(policy: AttentionPolicy, position: number, probabilities: Float32Array): QueryKeys {
  const pageSize = policy.kind === 'page-topk' ? policy.pageSize : 1;
  const tokens: number[] = [];
  for (let begin = 0; begin <= position; begin += pageSize) {
    const end = Math.min(position + 1, begin + pageSize);
    if (probabilities.subarray(begin, end).some((probability) => probability > 0)) {
      for (let j = begin; j < end; j++) tokens.push(j);
    }
  }
  return { tokens: Int32Array.from(tokens), blocks: noBlocks };
}
