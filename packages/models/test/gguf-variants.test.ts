/** GGUF keys and tensors that no golden model has, against a float64 pass. */
import { expect, test } from 'vitest';
import { modelFile, randomWeights, runModel, worstDifference } from './run-model.js';
import { geluTanh, layerNormOf, rmsOf, silu, speeds, truthLogits, type TruthModel, type TruthWeight } from './truth.js';

const [vocab, hidden, ffn, numLayers, headDim] = [11, 12, 10, 3, 4];
const tokens = [3, 7, 1, 0, 9, 4, 4, 2, 10, 6, 5, 8, 3, 1];
const shape = { numHeads: 4, numKvHeads: 2, headDim, numLayers } as const;
const limit = 1e-5;

type Shapes = Record<string, readonly number[]>;

const norm = (name: string, hasBias: boolean, size = hidden): Shapes => ({
  [`${name}.weight`]: [size],
  ...(hasBias ? { [`${name}.bias`]: [size] } : {}),
});
const linear = (name: string, numOutputs: number, numInputs: number, hasBias = false): Shapes => ({
  [`${name}.weight`]: [numOutputs, numInputs],
  ...(hasBias ? { [`${name}.bias`]: [numOutputs] } : {}),
});
const attention = (hasBias = false): Shapes => ({
  ...linear('attn_q', 16, hidden, hasBias),
  ...linear('attn_k', 8, hidden, hasBias),
  ...linear('attn_v', 8, hidden, hasBias),
  ...linear('attn_output', hidden, 16, hasBias),
});
const gatedFfn: Shapes = {
  ...linear('ffn_gate', ffn, hidden),
  ...linear('ffn_up', ffn, hidden),
  ...linear('ffn_down', hidden, ffn),
};
const layers = (shapes: Shapes): Shapes =>
  Object.fromEntries(
    Array.from({ length: numLayers }, (_, layer) =>
      Object.entries(shapes).map(([name, dims]) => [`blk.${layer}.${name}`, dims] as const),
    ).flat(),
  );
const outer = (isTied: boolean, hasBias: boolean): Shapes => ({
  'token_embd.weight': [vocab, hidden],
  ...norm('output_norm', hasBias),
  ...(isTied ? {} : { 'output.weight': [vocab, hidden] }),
});

function settingsOf(architecture: string, own: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const settings: Record<string, unknown> = {
    embedding_length: hidden,
    block_count: numLayers,
    feed_forward_length: ffn,
    context_length: 64,
    'attention.head_count': shape.numHeads,
    'attention.head_count_kv': shape.numKvHeads,
    'attention.key_length': headDim,
    'attention.value_length': headDim,
    ...own,
  };
  return {
    'general.architecture': architecture,
    ...Object.fromEntries(Object.entries(settings).map(([key, value]) => [`${architecture}.${key}`, value])),
  };
}

const usual = {
  ...shape,
  eps: 1e-5,
  norm: 'rms',
  activation: silu,
  embedding: 'token_embd',
  outputNorm: 'output_norm',
  output: 'output',
} as const;

function usualLayer(layer: number): Omit<ReturnType<TruthModel['layer']>, 'scale'> {
  const at = `blk.${layer}`;
  return {
    attentionNorm: `${at}.attn_norm`,
    ffnNorm: `${at}.ffn_norm`,
    q: `${at}.attn_q`,
    k: `${at}.attn_k`,
    v: `${at}.attn_v`,
    o: `${at}.attn_output`,
    gate: `${at}.ffn_gate`,
    up: `${at}.ffn_up`,
    down: `${at}.ffn_down`,
  };
}

async function expectTruth(
  settings: object,
  weights: ReadonlyMap<string, TruthWeight>,
  model: TruthModel,
): Promise<void> {
  const actual = await runModel(modelFile('gguf', settings, weights), tokens);
  const expected = truthLogits(model, (name) => weights.get(name), tokens);
  expect(Math.max(...expected.flat()) - Math.min(...expected.flat())).toBeGreaterThan(0.5);
  expect(worstDifference(actual, expected)).toBeLessThan(limit);
}

test('stablelm: parallel, norms per head', async () => {
  const weights = randomWeights({
    ...outer(false, true),
    ...layers({
      ...norm('attn_norm', true),
      ...attention(),
      ...gatedFfn,
      'attn_q_norm.weight': [4, headDim],
      'attn_k_norm.weight': [2, headDim],
    }),
  });
  const settings = settingsOf('stablelm', { 'attention.layer_norm_epsilon': 1e-5, 'rope.dimension_count': 2 });
  await expectTruth(settings, weights, {
    ...usual,
    norm: 'layer',
    layer: (layer) => {
      const { ffnNorm: _ffnNorm, ...names } = usualLayer(layer);
      const weightOf = (which: string, head: number) => (i: number) =>
        weights.get(`blk.${layer}.attn_${which}_norm.weight`)?.values[head * headDim + i] as number;
      const rope = { speeds: speeds(10000, 2), amplitude: 1 };
      return {
        ...names,
        rope,
        scale: 1 / 2,
        normHead: (x, which, head) => layerNormOf(x, 1e-5, weightOf(which, head)),
      };
    },
  });
});

test('phi2: separate matrices for q, k and v', async () => {
  const weights = randomWeights({
    ...outer(false, true),
    'output.bias': [vocab],
    ...layers({
      ...norm('attn_norm', true),
      ...attention(true),
      ...linear('ffn_up', ffn, hidden, true),
      ...linear('ffn_down', hidden, ffn, true),
    }),
  });
  const settings = settingsOf('phi2', { 'attention.layer_norm_epsilon': 1e-5, 'rope.dimension_count': 2 });
  await expectTruth(settings, weights, {
    ...usual,
    norm: 'layer',
    activation: geluTanh,
    layer: (layer) => {
      const { gate: _gate, ffnNorm: _ffnNorm, ...names } = usualLayer(layer);
      return { ...names, rope: { speeds: speeds(10000, 2), amplitude: 1 }, scale: 1 / 2 };
    },
  });
});

test.each([
  ['short', 14],
  ['long', 13],
] as const)(
  'phi3: separate matrices, %s factors for 14 tokens of a model for %i, the window ignored',
  async (which, original) => {
    const weights = new Map([
      ...randomWeights({
        ...outer(true, false),
        ...layers({ ...norm('attn_norm', false), ...norm('ffn_norm', false), ...attention(), ...gatedFfn }),
      }),
      ['rope_factors_short.weight', { shape: [2], values: Float32Array.of(1, 1.5) }] as const,
      ['rope_factors_long.weight', { shape: [2], values: Float32Array.of(2, 7) }] as const,
    ]);
    const settings = settingsOf('phi3', {
      'attention.layer_norm_rms_epsilon': 1e-5,
      'attention.sliding_window': 3,
      'rope.scaling.original_context_length': original,
      'rope.scaling.attn_factor': 1.25,
    });
    const factors = { short: [1, 1.5], long: [2, 7] }[which];
    const rope = { speeds: speeds(10000, 4).map((speed, i) => speed / (factors[i] as number)), amplitude: 1.25 };
    const layer: TruthModel['layer'] = (index) => ({ ...usualLayer(index), rope, scale: 1 / 2 });
    await expectTruth(settings, weights, { ...usual, output: 'token_embd', layer });
  },
);

const sandwich = (layer: number): Omit<ReturnType<TruthModel['layer']>, 'scale'> => ({
  ...usualLayer(layer),
  afterAttention: `blk.${layer}.post_attention_norm`,
  afterFfn: `blk.${layer}.post_ffw_norm`,
});
const sandwichShapes = ['attn_norm', 'post_attention_norm', 'ffn_norm', 'post_ffw_norm']
  .map((name) => norm(name, false))
  .reduce((all, one) => ({ ...all, ...one }));
const gemma = {
  ...usual,
  output: 'token_embd',
  activation: geluTanh,
  embeddingScale: Math.sqrt(hidden),
} as const;

test('gemma2: caps of 50 and 30 by default', async () => {
  const weights = randomWeights({
    ...outer(true, false),
    ...layers({ ...sandwichShapes, ...attention(), ...gatedFfn }),
  });
  const epsilon = { 'attention.layer_norm_rms_epsilon': 1e-5 };
  const rope = { speeds: speeds(10000, 4), amplitude: 1 };
  const layer: TruthModel['layer'] = (index) => ({ ...sandwich(index), rope, scale: 1 / 2, cap: 50 });
  // the default window of 4096 is longer than the prompt
  await expectTruth(settingsOf('gemma2', epsilon), weights, { ...gemma, finalCap: 30, layer });
});

test.each([
  ['a period', 2, [true, false, true]],
  ['a list', [false, true, true], [false, true, true]],
  ['nothing', undefined, [true, true, true]],
])('gemma3: the pattern of windows as %s', async (_name, pattern, windowed) => {
  const weights = randomWeights({
    ...outer(true, false),
    ...layers({
      ...sandwichShapes,
      ...attention(),
      ...gatedFfn,
      'attn_q_norm.weight': [headDim],
      'attn_k_norm.weight': [headDim],
    }),
  });
  const settings = settingsOf('gemma3', {
    'attention.layer_norm_rms_epsilon': 1e-5,
    'attention.sliding_window': 4,
    ...(pattern === undefined ? {} : { 'attention.sliding_window_pattern': pattern }),
    'rope.freq_base': 2000,
    'rope.scaling.factor': 4,
    final_logit_softcapping: 2,
  });
  const weightOf = (layer: number, which: string) => (i: number) =>
    weights.get(`blk.${layer}.attn_${which}_norm.weight`)?.values[i] as number;
  await expectTruth(settings, weights, {
    ...gemma,
    finalCap: 2,
    layer: (layer) => ({
      ...sandwich(layer),
      scale: 1 / 2,
      normHead: (x, which) => rmsOf(x, 1e-5, weightOf(layer, which)),
      ...(windowed[layer] === true
        ? { window: 4, rope: { speeds: speeds(10000, 4), amplitude: 1 } }
        : { rope: { speeds: speeds(2000, 4).map((speed) => speed / 4), amplitude: 1 } }),
    }),
  });
});

test('gemma3: without a window every layer is global', async () => {
  const weights = randomWeights({
    ...outer(true, false),
    ...layers({
      ...sandwichShapes,
      ...attention(),
      ...gatedFfn,
      'attn_q_norm.weight': [headDim],
      'attn_k_norm.weight': [headDim],
    }),
  });
  const settings = settingsOf('gemma3', { 'attention.layer_norm_rms_epsilon': 1e-5, 'rope.freq_base': 2000 });
  const weightOf = (layer: number, which: string) => (i: number) =>
    weights.get(`blk.${layer}.attn_${which}_norm.weight`)?.values[i] as number;
  await expectTruth(settings, weights, {
    ...gemma,
    layer: (layer) => ({
      ...sandwich(layer),
      scale: 1 / 2,
      rope: { speeds: speeds(2000, 4), amplitude: 1 },
      normHead: (x, which) => rmsOf(x, 1e-5, weightOf(layer, which)),
    }),
  });
});
