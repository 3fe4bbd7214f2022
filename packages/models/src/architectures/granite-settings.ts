/** The scaling factors of Granite models in both formats. */
import type { ModelFile } from '../program/architecture.js';
import type { DecoderConfig } from '../program/config.js';

/** Factors of embeddings, attention scores and residual branches; the logits are divided by `logits`. */
export interface GraniteFactors {
  readonly embedding: number;
  readonly attention: number;
  readonly residual: number;
  readonly logits: number;
}

/** The metadata keys of the factors. */
export const graniteGgufKeys = ['embedding_scale', 'attention.scale', 'residual_scale', 'logit_scale'] as const;

/** Names of the factors in config.json. */
export const graniteHubNames = [
  'embedding_multiplier',
  'attention_multiplier',
  'residual_multiplier',
  'logits_scaling',
] as const;

/**
 * In GGUF files 0 selects the default, as in llama.cpp.
 * @throws {FormatError} for a factor that is not positive
 */
export function graniteFactors(
  { format, fields }: ModelFile,
  { architecture, headDim }: DecoderConfig,
): GraniteFactors {
  const isGguf = format === 'gguf';
  const names = isGguf ? graniteGgufKeys.map((key) => `${architecture}.${key}`) : graniteHubNames;
  const [embedding, attention, residual, logits] = names.map((name, index) => {
    // without a setting, Transformers does not scale attention scores
    const usual = isGguf && index === 1 ? 1 / Math.sqrt(headDim) : 1;
    const stored = fields.number(name, usual);
    const factor = isGguf && stored === 0 ? usual : stored;
    if (factor > 0 && Number.isFinite(Math.fround(factor))) return factor;
    throw fields.refusal(name, 'a positive number that f32 can hold', factor);
  }) as [number, number, number, number];
  return { embedding, attention, residual, logits };
}
