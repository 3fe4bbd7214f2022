/**
 * RoPE whose frequencies depend on the length of the sequence, as in transformers (`dynamic_rope_update` of
 * modeling_rope_utils.py and `prepare_inputs_for_generation` of Phi 3):
 * - LongRoPE has one set of frequencies for sequences up to `contextLength` and another for longer ones. When a generation exceeds
 *   that length, all cached keys are recomputed.
 * - Dynamic NTK raises the base with the length: the length of a prompt sets the base for all of its tokens, and for each
 *   generated token its position plus one does. Cached keys keep their rotation.
 */
import type { RopeScaling } from '@winnow/ops';
import type { RopeConfig } from './config.js';

export interface RotaryLengths {
  /** Length of the longest sequence that uses the unscaled frequencies. */
  readonly contextLength: number;
  /** Length of the longest sequence that the frequency table covers; may be `Infinity`. */
  readonly maxLength: number;
  /**
   * What the rotation of a sequence depends on; 0 for the unscaled frequencies. Sequences can share cached keys only when this is equal.
   * @param numTokens length of the prompt
   */
  keyOf(numTokens: number): number;
  /** Whether a sequence with key 0 gets another one when it grows to this length. */
  changesAt(numTokens: number): boolean;
  /** The row of frequencies of a token. @param key key of its sequence */
  rowOf(key: number, position: number): number;
  /** The scaling of a prompt with this key. */
  scalingOf(key: number): RopeScaling | undefined;
  /** Whether a sequence can have this key. */
  isKey(key: number): boolean;
  /** Number of rows of the table of frequencies. */
  readonly numRows: number;
  /** The key that a row of frequencies belongs to. */
  keyOfRow(row: number): number;
}

/** `undefined` for models whose frequencies do not depend on the length. */
export function rotaryLengthsOf(rope: RopeConfig): RotaryLengths | undefined {
  if (rope.beyond !== undefined) return longRope(rope, rope.beyond);
  return rope.dynamic && dynamicNtk(rope.dynamic);
}

function longRope(rope: RopeConfig, { contextLength, scaling }: NonNullable<RopeConfig['beyond']>): RotaryLengths {
  return {
    contextLength,
    maxLength: Infinity,
    keyOf: (numTokens) => (numTokens > contextLength ? 1 : 0),
    changesAt: (numTokens) => numTokens > contextLength,
    rowOf: (key) => key,
    scalingOf: (key) => (key === 0 ? rope.scaling : scaling),
    isKey: (key) => key === 0 || key === 1,
    numRows: 2,
    keyOfRow: (row) => row,
  };
}

/** The base for a length L > C is `base * (factor L / C - (factor - 1))^(d / (d - 2))`; row `L - C` holds its frequencies. */
function dynamicNtk({ contextLength, factor }: NonNullable<RopeConfig['dynamic']>): RotaryLengths {
  const maxLength = Math.max(contextLength, Math.floor(factor * contextLength));
  const stretch = (length: number): number => (factor * length) / contextLength - (factor - 1);
  return {
    contextLength,
    maxLength,
    keyOf: (numTokens) => (numTokens > contextLength ? numTokens : 0),
    changesAt: () => false,
    rowOf: (key, position) => Math.min(maxLength, Math.max(contextLength, key, position + 1)) - contextLength,
    scalingOf: (key) => (key === 0 ? undefined : { type: 'ntk', factor: stretch(key) }),
    isKey: (key) => key === 0 || (Number.isSafeInteger(key) && key > contextLength && key <= maxLength),
    numRows: maxLength - contextLength + 1,
    keyOfRow: (row) => (row === 0 ? 0 : contextLength + row),
  };
}
