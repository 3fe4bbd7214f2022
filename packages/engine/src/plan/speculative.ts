/** The option `speculative`: how tokens are drafted. */
import type { Backend } from '@winnow/ops';
import type { LayerPolicy } from '@winnow/sparse-attention';
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

/** The policy of `self=POLICY`. */
export function selfPolicyOf(value: Speculative): string | undefined {
  return value.startsWith(selfPrefix) ? value.slice(selfPrefix.length) : undefined;
}

/** Whether generated tokens attend to the same keys with the same weights when a step computes several of them. */
export function verifiesDrafts({ decode: { kind } }: LayerPolicy): boolean {
  return kind === 'dense' || kind === 'streaming';
}

/**
 * Why steps of a model cannot verify drafts: generated tokens would depend on the others of their step. Undefined if they can.
 * @param isSparse whether its FFNs are sparse
 */
export function draftObstacle(
  layers: readonly LayerPolicy[],
  isSparse: boolean,
  { name, isBatchInvariant = false }: Pick<Backend, 'name' | 'isBatchInvariant'>,
): string | undefined {
  const other = layers.find((layer) => !verifiesDrafts(layer));
  if (other !== undefined) return `drafts need decode attention that is dense or streaming, not ${other.decode.kind}`;
  if (isSparse) return 'FFNs with sparsity.calibration select neurons for all tokens of a step together';
  return isBatchInvariant ? undefined : `the backend ${name} computes no batch-invariant steps`;
}

/**
 * Whether steps of the model may verify drafts, so that programs must be batch-invariant.
 * @throws {ArgumentError} where drafts are wanted, but cannot be verified
 */
export function checkVerifies(value: Speculative, obstacle: string | undefined): boolean {
  if (obstacle === undefined || value === 'off' || value === 'auto') return obstacle === undefined && value !== 'off';
  throw new ArgumentError({ argument: 'speculative', expected: `off | auto, since ${obstacle}`, actual: value });
}
