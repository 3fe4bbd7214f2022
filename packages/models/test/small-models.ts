/** Small models for the tests of settings: shapes of their weights, and their description for the float64 pass. */
import { expect } from 'vitest';
import { modelFile, runModel, worstDifference } from './run-model.js';
import { silu, speeds, truthLogits, type TruthModel, type TruthWeight } from './truth.js';

export const vocab = 11;
export const hidden = 12;
export const ffn = 10;
export const numLayers = 3;
export const tokens: readonly number[] = [3, 7, 1, 0, 9, 4, 4, 2, 10, 6, 5, 8, 3, 1];
export const sizes = {
  hidden_size: 12,
  intermediate_size: 10,
  num_hidden_layers: 3,
  vocab_size: 11,
};

export interface Heads {
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
}
export const heads = (numHeads: number, numKvHeads: number, headDim: number): Heads => ({
  numHeads,
  numKvHeads,
  headDim,
});
export const settingsOf = ({ numHeads, numKvHeads }: Heads): object => ({
  ...sizes,
  num_attention_heads: numHeads,
  num_key_value_heads: numKvHeads,
});

export type Shapes = Record<string, readonly number[]>;

export function outerShapes(isTied: boolean, norm = 'model.norm', hasBias = false): Shapes {
  return {
    'model.embed_tokens.weight': [vocab, hidden],
    [`${norm}.weight`]: [hidden],
    ...(hasBias ? { [`${norm}.bias`]: [hidden] } : {}),
    ...(isTied ? {} : { 'lm_head.weight': [vocab, hidden] }),
  };
}

/** Shapes of every layer from those of one, whose names lack the layer prefix. */
export function layerShapes(shapes: Shapes, prefix = 'model.layers'): Shapes {
  return Object.fromEntries(
    Array.from({ length: numLayers }, (_, layer) =>
      Object.entries(shapes).map(([name, shape]) => [`${prefix}.${layer}.${name}`, shape] as const),
    ).flat(),
  );
}

export function linearShapes(names: Readonly<Record<string, readonly [number, number]>>, hasBias: boolean): Shapes {
  return Object.fromEntries(
    Object.entries(names).flatMap(([name, shape]) => [
      [`${name}.weight`, shape] as const,
      ...(hasBias ? [[`${name}.bias`, [shape[0]]] as const] : []),
    ]),
  );
}

export function attentionShapes(
  { numHeads, numKvHeads, headDim }: Heads,
  output = 'o_proj',
): Record<string, [number, number]> {
  return {
    'self_attn.q_proj': [numHeads * headDim, hidden],
    'self_attn.k_proj': [numKvHeads * headDim, hidden],
    'self_attn.v_proj': [numKvHeads * headDim, hidden],
    [`self_attn.${output}`]: [hidden, numHeads * headDim],
  };
}
export const gatedShapes: Record<string, [number, number]> = {
  'mlp.gate_proj': [ffn, hidden],
  'mlp.up_proj': [ffn, hidden],
  'mlp.down_proj': [hidden, ffn],
};
export const normShapes = (names: readonly string[], hasBias = false): Shapes =>
  Object.fromEntries(
    names.flatMap((name) => [
      [`${name}.weight`, [hidden]] as const,
      ...(hasBias ? [[`${name}.bias`, [hidden]] as const] : []),
    ]),
  );

export type TruthLayer = ReturnType<TruthModel['layer']>;

/** Names of a common layer. */
export function usualLayer(layer: number): Omit<TruthLayer, 'scale'> {
  const at = `model.layers.${layer}`;
  return {
    attentionNorm: `${at}.input_layernorm`,
    ffnNorm: `${at}.post_attention_layernorm`,
    q: `${at}.self_attn.q_proj`,
    k: `${at}.self_attn.k_proj`,
    v: `${at}.self_attn.v_proj`,
    o: `${at}.self_attn.o_proj`,
    gate: `${at}.mlp.gate_proj`,
    up: `${at}.mlp.up_proj`,
    down: `${at}.mlp.down_proj`,
  };
}
export const usual: Omit<TruthModel, 'layer' | 'numHeads' | 'numKvHeads' | 'headDim'> = {
  numLayers,
  eps: 1e-5,
  norm: 'rms',
  activation: silu,
  embedding: 'model.embed_tokens',
  outputNorm: 'model.norm',
  output: 'lm_head',
};
export const plain = (base: number, rotaryDim: number): NonNullable<TruthLayer['rope']> => ({
  speeds: speeds(base, rotaryDim),
  amplitude: 1,
});

/** The error of f32: values of order 1 after three layers of sums of a dozen terms. */
export const limit = 1e-5;

export async function expectTruth(
  settings: object,
  weights: ReadonlyMap<string, TruthWeight>,
  model: TruthModel,
  options: { readonly contextSize?: number; readonly truthWeights?: ReadonlyMap<string, TruthWeight> } = {},
): Promise<void> {
  const actual = await runModel(modelFile('safetensors', settings, weights), tokens, options.contextSize);
  const expected = truthLogits(model, (name) => (options.truthWeights ?? weights).get(name), tokens);
  const spread = Math.max(...expected.flat()) - Math.min(...expected.flat());
  expect(spread).toBeGreaterThan(0.5);
  expect(worstDifference(actual, expected)).toBeLessThan(limit);
}
