/** Options that models without attention layers, such as Mamba, refuse: their layers have states instead of keys and values. */
import { ArgumentError } from '@winnow/tensor';
import type { AttentionPlan } from './attention-plan.js';
import type { ResolvedPlanOptions } from './options.js';

/** @throws {ArgumentError} for an option that only attention layers could follow */
export function refuseWithoutAttention({ text }: AttentionPlan, { kvCache, trace }: ResolvedPlanOptions): void {
  const { rotation = 'none', eviction = 'oldest', budget, offload } = kvCache;
  const options: readonly (readonly [argument: string, only: string, actual: unknown])[] = [
    ['attention', 'dense', text],
    ['kvCache.rotation', 'none', rotation === 'none' ? undefined : rotation],
    ['kvCache.eviction', 'oldest', eviction === 'oldest' ? undefined : 'least-attended'],
    ['kvCache.budget', 'none', budget],
    ['kvCache.offload', 'none', offload && 'one'],
    ['trace.attention', 'none', trace?.attention === true ? 'one' : undefined],
    ['trace.visitedKeys', 'none', trace?.visitedKeys === true ? 'one' : undefined],
  ];
  for (const [argument, only, actual] of options) {
    if (actual === undefined) continue;
    const expected = `${only} for a model without attention layers`;
    throw new ArgumentError({ argument, expected, actual: String(actual) });
  }
}
