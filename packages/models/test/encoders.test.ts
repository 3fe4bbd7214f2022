/** Encoders in folders with names, settings and heads that no golden model has, against a float64 pass; and errors. */
import { ArgumentError, FormatError } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import { describeEmbedder, describeModel, Fields, storedPooling, type Pooling } from '../src/index.js';
import { modelFile, randomWeights, worstDifference } from './run-model.js';
import { runEmbedder, truthStates, type TruthEncoder } from './encoder-truth.js';
import { silu, speeds, type TruthWeight } from './truth.js';

type Shapes = Record<string, readonly number[]>;

const hidden = 12;
const ffn = 10;
const numLayers = 4;
const texts = [
  [3, 7, 1, 0, 9, 4, 4, 2, 10, 6, 5, 8],
  [2, 1],
  [5, 5, 9],
];
const limit = 2e-5;

/** GELU by the series of the error function, which is accurate for small arguments; beyond 5 it is constant. */
function geluErf(x: number): number {
  const z = Math.abs(x) / Math.SQRT2;
  if (z > 5) return x > 0 ? x : 0;
  let term = z;
  let sum = z;
  for (let n = 1; n < 200; n++) {
    term *= (-z * z) / n;
    sum += term / (2 * n + 1);
  }
  return 0.5 * x * (1 + (Math.sign(x) * 2 * sum) / Math.sqrt(Math.PI));
}

const matrix = (name: string, rows: number, columns: number, hasBias: boolean): Shapes => ({
  [`${name}.weight`]: [rows, columns],
  ...(hasBias ? { [`${name}.bias`]: [rows] } : {}),
});
const norm = (name: string, hasBias = true): Shapes => ({
  [`${name}.weight`]: [hidden],
  ...(hasBias ? { [`${name}.bias`]: [hidden] } : {}),
});
const layers = (shapes: (layer: number) => Shapes): Shapes =>
  Object.assign({}, ...Array.from({ length: numLayers }, (_, layer) => shapes(layer))) as Shapes;

function pooled(kind: Pooling, states: readonly number[][]): number[] {
  const n = states.length;
  const column = (i: number): number[] => states.map((state) => state[i] as number);
  const sum = (values: number[]): number => values.reduce((a, b) => a + b);
  return Array.from({ length: hidden }, (_, i) => {
    const values = column(i);
    if (kind === 'cls') return values[0] as number;
    if (kind === 'last') return values[n - 1] as number;
    if (kind === 'max') return Math.max(...values);
    if (kind === 'mean-sqrt') return sum(values) / Math.sqrt(n);
    if (kind === 'weighted-mean') return sum(values.map((value, at) => (at + 1) * value)) / ((n * (n + 1)) / 2);
    return sum(values) / n;
  });
}

async function expectTruth(
  settings: object,
  weights: ReadonlyMap<string, TruthWeight>,
  truth: TruthEncoder,
  pooling: Pooling = 'mean',
  stored: ReadonlyMap<string, TruthWeight> = weights,
): Promise<void> {
  const actual = await runEmbedder(modelFile('safetensors', settings, stored), pooling, texts);
  const expected = texts.map((text) =>
    pooled(
      pooling,
      truthStates(truth, (name) => weights.get(name), text),
    ),
  );
  expect(worstDifference(actual, expected)).toBeLessThan(limit);
}

const renamed = (
  weights: ReadonlyMap<string, TruthWeight>,
  rename: (name: string) => string,
  more: Shapes = {},
): Map<string, TruthWeight> =>
  new Map([...[...weights].map(([name, weight]) => [rename(name), weight] as const), ...randomWeights(more)]);

const settings = {
  model_type: 'bert',
  vocab_size: 11,
  hidden_size: hidden,
  intermediate_size: ffn,
  num_hidden_layers: numLayers,
  num_attention_heads: 3,
  max_position_embeddings: 16,
  type_vocab_size: 2,
  hidden_act: 'gelu',
  layer_norm_eps: 1e-3,
};
const weights = randomWeights({
  'embeddings.word_embeddings.weight': [11, hidden],
  'embeddings.position_embeddings.weight': [16, hidden],
  'embeddings.token_type_embeddings.weight': [2, hidden],
  ...norm('embeddings.LayerNorm'),
  ...layers((layer) => {
    const own = `encoder.layer.${layer}`;
    return {
      ...matrix(`${own}.attention.self.query`, hidden, hidden, true),
      ...matrix(`${own}.attention.self.key`, hidden, hidden, true),
      ...matrix(`${own}.attention.self.value`, hidden, hidden, true),
      ...matrix(`${own}.attention.output.dense`, hidden, hidden, true),
      ...norm(`${own}.attention.output.LayerNorm`),
      ...matrix(`${own}.intermediate.dense`, ffn, hidden, true),
      ...matrix(`${own}.output.dense`, hidden, ffn, true),
      ...norm(`${own}.output.LayerNorm`),
    };
  }),
});
const truth: TruthEncoder = {
  numHeads: 3,
  numLayers,
  eps: 1e-3,
  activation: geluErf,
  tokens: 'embeddings.word_embeddings',
  positions: 'embeddings.position_embeddings',
  types: 'embeddings.token_type_embeddings',
  embeddingNorm: 'embeddings.LayerNorm',
  layer: (layer) => ({
    order: 'post',
    attentionNorm: `encoder.layer.${layer}.attention.output.LayerNorm`,
    ffnNorm: `encoder.layer.${layer}.output.LayerNorm`,
    qkv: ['query', 'key', 'value'].map((name) => `encoder.layer.${layer}.attention.self.${name}`),
    output: `encoder.layer.${layer}.attention.output.dense`,
    up: [`encoder.layer.${layer}.intermediate.dense`],
    isGated: false,
    down: `encoder.layer.${layer}.output.dense`,
  }),
};

test.each(['mean', 'cls', 'last', 'max', 'weighted-mean', 'mean-sqrt'] as const)('bert: gelu by erf, %s', (pooling) =>
  expectTruth(settings, weights, truth, pooling),
);

test('bert: pretraining heads, a name prefix, and norm names of the first checkpoints', () => {
  const stored = renamed(
    weights,
    (name) => `bert.${name.replace('LayerNorm.weight', 'LayerNorm.gamma').replace('LayerNorm.bias', 'LayerNorm.beta')}`,
    {
      'bert.pooler.dense.weight': [hidden, hidden],
      'bert.pooler.dense.bias': [hidden],
      'bert.embeddings.position_ids': [1, 16],
      'cls.predictions.bias': [11],
      'cls.predictions.transform.LayerNorm.gamma': [hidden],
    },
  );
  return expectTruth(settings, weights, truth, 'mean', stored);
});

test('bert: without token types', () => {
  const without = new Map([...weights].filter(([name]) => !name.includes('token_type')));
  const { types: _, ...untyped } = truth;
  return expectTruth({ ...settings, type_vocab_size: 0 }, without, untyped);
});

test.each([
  [{ position_embedding_type: 'relative_key' }, /position_embedding_type: expected absolute/],
  [{ is_decoder: true }, /is_decoder: expected false/],
  [{ add_cross_attention: true }, /add_cross_attention: expected false/],
  [{ hidden_act: 'tanh' }, /hidden_act: expected/],
  [{ layer_norm_eps: 0 }, /norm epsilon/],
  [{ max_position_embeddings: 17 }, /position_embeddings\.weight: expected shape/],
  [{ num_hidden_layers: 5 }, /encoder\.layer\.4/],
  [{ num_hidden_layers: 3 }, /16 tensors are not part of this architecture/],
  [{ quantization_config: {} }, /quantization_config/],
])('bert: rejects %j', async (changed, message) => {
  const file = modelFile('safetensors', { ...settings, ...changed }, weights);
  await expect(describeEmbedder(file)).rejects.toThrow(message);
  await expect(describeEmbedder(file)).rejects.toThrow(FormatError);
});

test('bert: a ranking or classification head is rejected', async () => {
  const stored = renamed(weights, (name) => `bert.${name}`, { 'classifier.weight': [1, hidden] });
  const file = modelFile('safetensors', settings, stored);
  await expect(describeEmbedder(file)).rejects.toThrow('classifier.weight');
});

test('bert: does not generate', async () => {
  const file = modelFile('safetensors', settings, weights);
  await expect(describeModel(file)).rejects.toThrow(ArgumentError);
});

const nomicSettings = {
  model_type: 'nomic_bert',
  vocab_size: 11,
  n_embd: hidden,
  n_inner: ffn,
  n_layer: numLayers,
  n_head: 3,
  n_positions: 64,
  activation_function: 'swiglu',
  layer_norm_epsilon: 1e-3,
  rotary_emb_base: 50,
  rotary_emb_fraction: 0.5,
  rotary_emb_interleaved: false,
  rotary_emb_scale_base: null,
  qkv_proj_bias: true,
  mlp_fc1_bias: false,
  mlp_fc2_bias: true,
  prenorm: false,
  causal: false,
};

const nomicWeights = randomWeights({
  'embeddings.word_embeddings.weight': [11, hidden],
  'embeddings.token_type_embeddings.weight': [2, hidden],
  ...norm('emb_ln'),
  ...layers((layer) => {
    const own = `encoder.layers.${layer}`;
    return {
      ...matrix(`${own}.attn.Wqkv`, 3 * hidden, hidden, true),
      ...matrix(`${own}.attn.out_proj`, hidden, hidden, true),
      ...norm(`${own}.norm1`),
      ...matrix(`${own}.mlp.fc11`, ffn, hidden, false),
      ...matrix(`${own}.mlp.fc12`, ffn, hidden, false),
      ...matrix(`${own}.mlp.fc2`, hidden, ffn, true),
      ...norm(`${own}.norm2`),
    };
  }),
});

const nomicTruth: TruthEncoder = {
  numHeads: 3,
  numLayers,
  eps: 1e-3,
  activation: silu,
  tokens: 'embeddings.word_embeddings',
  types: 'embeddings.token_type_embeddings',
  embeddingNorm: 'emb_ln',
  layer: (layer) => ({
    order: 'post',
    attentionNorm: `encoder.layers.${layer}.norm1`,
    ffnNorm: `encoder.layers.${layer}.norm2`,
    qkv: [`encoder.layers.${layer}.attn.Wqkv`],
    output: `encoder.layers.${layer}.attn.out_proj`,
    up: [`encoder.layers.${layer}.mlp.fc12`, `encoder.layers.${layer}.mlp.fc11`],
    isGated: true,
    down: `encoder.layers.${layer}.mlp.fc2`,
    speeds: speeds(50, 2),
  }),
};

describe('nomic-bert', () => {
  test('fused matrices, biases, half of each head rotated', () => expectTruth(nomicSettings, nomicWeights, nomicTruth));

  test('geglu', () => {
    return expectTruth({ ...nomicSettings, activation_function: 'geglu' }, nomicWeights, {
      ...nomicTruth,
      activation: geluErf,
    });
  });

  test('a scaling beyond the trained positions limits the context', async () => {
    const scaled = { ...nomicSettings, rotary_scaling_factor: 2, max_trained_positions: 32 };
    const { config } = await describeEmbedder(modelFile('safetensors', scaled, nomicWeights));
    expect(config.contextLength).toBe(32);
  });

  test.each([
    [{ activation_function: 'gelu' }, /activation_function: expected swiglu or geglu/],
    [{ prenorm: true }, /prenorm: expected false/],
    [{ causal: true }, /causal: expected false/],
    [{ rotary_emb_interleaved: true }, /rotary_emb_interleaved/],
    [{ rotary_emb_scale_base: 512 }, /rotary_emb_scale_base/],
    [{ rotary_emb_fraction: 0 }, /partial_rotary_factor/],
    [{ use_rms_norm: true }, /use_rms_norm/],
    [{ num_experts: 8 }, /num_experts/],
  ])('rejects %j', async (changed, message) => {
    const file = modelFile('safetensors', { ...nomicSettings, ...changed }, nomicWeights);
    await expect(describeEmbedder(file)).rejects.toThrow(message);
  });
});

const modernSettings = {
  model_type: 'modernbert',
  vocab_size: 11,
  hidden_size: hidden,
  intermediate_size: ffn,
  num_hidden_layers: numLayers,
  num_attention_heads: 3,
  norm_eps: 1e-3,
  norm_bias: true,
  attention_bias: true,
  mlp_bias: true,
  local_attention: 5,
  global_attn_every_n_layers: 2,
  global_rope_theta: 900,
  local_rope_theta: 30,
};

const modernWeights = randomWeights({
  'embeddings.tok_embeddings.weight': [11, hidden],
  ...norm('embeddings.norm'),
  ...norm('final_norm'),
  ...layers((layer) => ({
    ...(layer === 0 ? {} : norm(`layers.${layer}.attn_norm`)),
    ...matrix(`layers.${layer}.attn.Wqkv`, 3 * hidden, hidden, true),
    ...matrix(`layers.${layer}.attn.Wo`, hidden, hidden, true),
    ...norm(`layers.${layer}.mlp_norm`),
    ...matrix(`layers.${layer}.mlp.Wi`, 2 * ffn, hidden, true),
    ...matrix(`layers.${layer}.mlp.Wo`, hidden, ffn, true),
  })),
});

const modernTruth = (
  isLocal: (layer: number) => boolean,
  bases: readonly [number, number] = [900, 30],
): TruthEncoder => ({
  numHeads: 3,
  numLayers,
  eps: 1e-3,
  activation: geluErf,
  tokens: 'embeddings.tok_embeddings',
  embeddingNorm: 'embeddings.norm',
  finalNorm: 'final_norm',
  layer: (layer) => ({
    order: 'pre',
    ...(layer === 0 ? {} : { attentionNorm: `layers.${layer}.attn_norm` }),
    ffnNorm: `layers.${layer}.mlp_norm`,
    qkv: [`layers.${layer}.attn.Wqkv`],
    output: `layers.${layer}.attn.Wo`,
    up: [`layers.${layer}.mlp.Wi`],
    isGated: true,
    down: `layers.${layer}.mlp.Wo`,
    speeds: speeds(bases[isLocal(layer) ? 1 : 0], 4),
    ...(isLocal(layer) ? { reach: 2 } : {}),
  }),
});

const everySecond = (layer: number): boolean => layer % 2 !== 0;

describe('modern-bert', () => {
  test('biases everywhere, every second layer local', () =>
    expectTruth(modernSettings, modernWeights, modernTruth(everySecond)));

  test.each(['cls', 'last', 'mean'] as const)('the last norm and %s', (pooling) =>
    expectTruth(modernSettings, modernWeights, modernTruth(everySecond), pooling),
  );

  test('with heads and a name prefix', () => {
    const more = { 'head.dense.weight': [hidden, hidden], 'head.norm.weight': [hidden], 'decoder.bias': [11] };
    const stored = renamed(modernWeights, (name) => `model.${name}`, more);
    return expectTruth(modernSettings, modernWeights, modernTruth(everySecond), 'mean', stored);
  });

  test('settings of newer files: layer types, RoPE by type', () => {
    const kinds = ['full_attention', 'full_attention', 'sliding_attention', 'full_attention'];
    const newer = {
      ...modernSettings,
      layer_types: kinds,
      rope_parameters: {
        full_attention: { rope_type: 'default', rope_theta: 700 },
        sliding_attention: { rope_type: 'default', rope_theta: 40 },
      },
    };
    return expectTruth(
      newer,
      modernWeights,
      modernTruth((layer) => layer === 2, [700, 40]),
    );
  });

  test('local layers without a separate RoPE base use that of the others', () =>
    expectTruth({ ...modernSettings, local_rope_theta: null }, modernWeights, modernTruth(everySecond, [900, 900])));

  test.each([
    [{ is_causal: true }, /is_causal: expected false/],
    [{ hidden_activation: 'mish' }, /hidden_activation/],
    [{ layer_types: ['full_attention'] }, /layer_types: expected an array of 4/],
    [{ local_attention: 0 }, /local_attention: expected a positive integer/],
  ])('rejects %j', async (changed, message) => {
    const file = modelFile('safetensors', { ...modernSettings, ...changed }, modernWeights);
    await expect(describeEmbedder(file)).rejects.toThrow(message);
  });
});

describe('pooling of GGUF files', () => {
  const file = (fields: object): Parameters<typeof storedPooling>[0] => ({
    ...modelFile('gguf', {}, new Map()),
    fields: Fields.ofJson('f', { 'general.architecture': 'bert', ...fields }),
  });

  test('by its number', () => {
    const poolings = [0, 1, 2, 3].map((type) => storedPooling(file({ 'bert.pooling_type': type })));
    expect(poolings).toEqual([undefined, 'mean', 'cls', 'last']);
    expect(storedPooling(file({}))).toBeUndefined();
  });

  test('ranking models are rejected', () => {
    expect(() => storedPooling(file({ 'bert.pooling_type': 4 }))).toThrow(/pooling_type: expected .* got 4/);
  });

  test('a causal encoder is rejected', async () => {
    const settings = { 'general.architecture': 'bert', 'bert.attention.causal': true };
    await expect(describeEmbedder(modelFile('gguf', settings, new Map()))).rejects.toThrow(
      'bert.attention.causal: expected false, got true',
    );
  });
});
