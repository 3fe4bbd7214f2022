/** Applies the overflow policy to a prompt that is too long. */
import { CapacityError } from '@winnow/tensor';
import { checkOverflow, dropsTokens, type OverflowPolicy } from './overflow.js';

/** The tokens of a prompt that are used, and how many were dropped. */
export interface FittedPrompt {
  readonly tokens: Int32Array;
  readonly numDropped: number;
}

/**
 * Makes the prompt leave room for one new token; policies that drop cached tokens leave it unchanged.
 * @throws {CapacityError} when it does not fit and the policy is `stop` or `error`, or the context has no room for any
 *   prompt
 */
export function fitPrompt(tokens: Int32Array, contextSize: number, policy: OverflowPolicy): FittedPrompt {
  checkOverflow(policy);
  const maxTokens = contextSize - 1;
  if (tokens.length <= maxTokens || (dropsTokens(policy) && maxTokens > 0)) return { tokens, numDropped: 0 };
  // a context of one token has no room for any prompt
  if (policy === 'error' || policy === 'stop' || maxTokens === 0) {
    throw new CapacityError({
      resource: 'context',
      needed: tokens.length + 1,
      available: contextSize,
      unit: 'tokens',
      hint: `the prompt has ${tokens.length} tokens and one more is to be generated; a larger context or another overflow policy helps`,
    });
  }
  const numFirst = policy === 'truncate-start' ? 1 : Math.ceil(maxTokens / 2);
  const kept = new Int32Array(maxTokens);
  kept.set(tokens.subarray(0, numFirst));
  kept.set(tokens.subarray(tokens.length - (maxTokens - numFirst)), numFirst);
  return { tokens: kept, numDropped: tokens.length - maxTokens };
}
