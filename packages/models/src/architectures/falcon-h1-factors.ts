/** The µP factors of Falcon-H1, which config.json declares and GGUF files fold into the weights. */
import type { StateSpaceFactors } from '../blocks/state-space.js';
import type { Fields } from '../file/fields.js';
import { listOf } from '../settings/recurrent-settings.js';

/** Factors of embeddings and logits, of the inputs and outputs of each block, and of keys. */
export interface FalconH1Factors {
  readonly embedding: number;
  readonly logits: number;
  readonly attentionIn: number;
  readonly attentionOut: number;
  readonly key: number;
  /** Already multiplied by the factor of the inputs. */
  readonly states: StateSpaceFactors;
  readonly statesOut: number;
  readonly gate: number;
  readonly down: number;
}

const singleNames = [
  'embedding_multiplier',
  'lm_head_multiplier',
  'attention_in_multiplier',
  'attention_out_multiplier',
  'key_multiplier',
  'ssm_in_multiplier',
  'ssm_out_multiplier',
] as const;

/** Names of the factors in config.json. */
export const falconH1FactorNames: readonly string[] = /* @__PURE__ */ [
  singleNames,
  ['ssm_multipliers', 'mlp_multipliers'],
].flat();

/** @throws {FormatError} for a factor that is not a positive number */
export function falconH1Factors(fields: Fields): FalconH1Factors {
  const checked = (name: string, factor: unknown): number => {
    if (typeof factor === 'number' && factor > 0 && Number.isFinite(Math.fround(factor))) return factor;
    throw fields.refusal(name, 'a positive number that f32 can hold', factor);
  };
  const several = (name: string, count: number): number[] => {
    if (!fields.has(name)) return Array.from({ length: count }, () => 1);
    const factors = listOf(fields, name);
    if (factors?.length !== count) throw fields.refusal(name, `an array of ${count}`, fields.raw(name));
    return factors.map((factor) => checked(name, factor));
  };
  const single = (name: (typeof singleNames)[number]): number => checked(name, fields.number(name, 1));
  const statesIn = single('ssm_in_multiplier');
  const parts = several('ssm_multipliers', 5).map((factor) => statesIn * factor);
  const [z, x, b, c, dt] = parts as [number, number, number, number, number];
  const [gate, down] = several('mlp_multipliers', 2) as [number, number];
  return {
    embedding: single('embedding_multiplier'),
    logits: single('lm_head_multiplier'),
    attentionIn: single('attention_in_multiplier'),
    attentionOut: single('attention_out_multiplier'),
    key: single('key_multiplier'),
    states: { z, x, b, c, dt },
    statesOut: single('ssm_out_multiplier'),
    gate,
    down,
  };
}
