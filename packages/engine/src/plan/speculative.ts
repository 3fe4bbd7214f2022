/** The option `speculative`: how tokens are drafted. */
import { ArgumentError } from '@winnow/tensor';

/**
 * - `off`: one token per step.
 * - `lookup`: drafts repeat what followed the last tokens earlier in prompt and output.
 * - `self=POLICY`: drafts come from the same weights under a sparse attention policy, `self` in generations of a model that was loaded
 *   with it.
 * - `draft`: drafts come from `draftModel`, a smaller model with the same vocabulary.
 * - `auto`: lookup, then what the model was loaded with for drafts; `off` if the attention policy of generated tokens allows none.
 */
export type Speculative = 'off' | 'lookup' | 'auto' | 'self' | 'draft' | `self=${string}`;

const kinds: readonly Speculative[] = ['off', 'lookup', 'auto', 'self', 'draft'];
const selfPrefix = 'self=';

/** @throws {ArgumentError} for another value */
export function checkSpeculative(value: Speculative): Speculative {
  if (kinds.includes(value) || (typeof value === 'string' && value.startsWith(selfPrefix))) return value;
  const expected = `${kinds.join(' | ')} | ${selfPrefix}POLICY`;
  throw new ArgumentError({ argument: 'speculative', expected, actual: String(value) });
}

/** Whether no tokens are drafted unless generations ask for it. @throws {ArgumentError} */
export function isOff(value: Speculative): boolean {
  return checkSpeculative(value) === 'off';
}

/** The policy of `self=POLICY`. */
export function selfPolicyOf(value: Speculative): string | undefined {
  return value.startsWith(selfPrefix) ? value.slice(selfPrefix.length) : undefined;
}

/**
 * Whether steps of the model may verify drafts, so that programs must be batch-invariant.
 * @throws {ArgumentError} where drafts are wanted, but generated tokens would depend on the others of their step
 */
export function checkVerifies(value: Speculative, canVerify: boolean): boolean {
  if (canVerify || value === 'off' || value === 'auto') return canVerify && value !== 'off';
  const expected =
    'off | auto, unless decode attention is dense or streaming, without sparsity, on a backend that computes batch-invariant steps';
  throw new ArgumentError({ argument: 'speculative', expected, actual: value });
}
