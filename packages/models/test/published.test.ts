/** Configs of published models, with tensors of the right names and shapes and no data. */
import type { StoredTensor } from '@winnow/bytes';
import { validateProgram } from '@winnow/ops';
import { tensorBytes, type Shape } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import { describeModel, Fields, type ModelFile } from '../src/index.js';

type Shapes = Record<string, Shape>;

interface Published {
  readonly name: string;
  readonly settings: Readonly<Record<string, unknown>>;
  readonly outer: Shapes;
  readonly layer: Shapes;
  readonly layerPrefix?: string;
  /** Number of parameters on the model card, the sum over the tensors. */
  readonly numParameters: number;
  readonly expected: Readonly<Record<string, unknown>>;
}

const linear = (name: string, numOutputs: number, numInputs: number, hasBias = false): Shapes => ({
  [`${name}.weight`]: [numOutputs, numInputs],
  ...(hasBias ? { [`${name}.bias`]: [numOutputs] } : {}),
});
const norms = (names: readonly string[], size: number, hasBias = false): Shapes =>
  Object.fromEntries(
    names.flatMap((name) => (hasBias ? ['weight', 'bias'] : ['weight']).map((part) => [`${name}.${part}`, [size]])),
  );
const attention = (hidden: number, query: number, keyValue: number, bias = '', output = 'o_proj'): Shapes => ({
  ...linear('self_attn.q_proj', query, hidden, bias.includes('q')),
  ...linear('self_attn.k_proj', keyValue, hidden, bias.includes('k')),
  ...linear('self_attn.v_proj', keyValue, hidden, bias.includes('v')),
  ...linear(`self_attn.${output}`, hidden, query, bias.includes('o')),
});
const gated = (hidden: number, ffn: number): Shapes => ({
  ...linear('mlp.gate_proj', ffn, hidden),
  ...linear('mlp.up_proj', ffn, hidden),
  ...linear('mlp.down_proj', hidden, ffn),
});
const outer = (vocab: number, hidden: number, isTied: boolean, hasBias = false): Shapes => ({
  'model.embed_tokens.weight': [vocab, hidden],
  ...norms(['model.norm'], hidden, hasBias),
  ...(isTied ? {} : { 'lm_head.weight': [vocab, hidden] }),
});
const twoNorms = ['input_layernorm', 'post_attention_layernorm'];
const fourNorms = [...twoNorms, 'pre_feedforward_layernorm', 'post_feedforward_layernorm'];

const published: readonly Published[] = [
  {
    name: 'Qwen2.5-0.5B',
    settings: {
      model_type: 'qwen2',
      attention_dropout: 0.0,
      hidden_act: 'silu',
      hidden_size: 896,
      intermediate_size: 4864,
      max_position_embeddings: 32768,
      max_window_layers: 24,
      num_attention_heads: 14,
      num_hidden_layers: 24,
      num_key_value_heads: 2,
      rms_norm_eps: 1e-6,
      rope_theta: 1000000.0,
      sliding_window: 32768,
      tie_word_embeddings: true,
      use_mrope: false,
      use_sliding_window: false,
      vocab_size: 151936,
    },
    outer: outer(151936, 896, true),
    layer: { ...norms(twoNorms, 896), ...attention(896, 896, 128, 'qkv'), ...gated(896, 4864) },
    numParameters: 494_032_768,
    expected: { headDim: 64, slidingWindow: 0, isTied: true, rope: { base: 1e6, layout: 'halves' } },
  },
  {
    name: 'Qwen3-0.6B',
    settings: {
      model_type: 'qwen3',
      attention_bias: false,
      head_dim: 128,
      hidden_act: 'silu',
      hidden_size: 1024,
      intermediate_size: 3072,
      max_position_embeddings: 40960,
      max_window_layers: 28,
      num_attention_heads: 16,
      num_hidden_layers: 28,
      num_key_value_heads: 8,
      rms_norm_eps: 1e-6,
      rope_scaling: null,
      rope_theta: 1000000,
      sliding_window: null,
      tie_word_embeddings: true,
      use_sliding_window: false,
      vocab_size: 151936,
    },
    outer: outer(151936, 1024, true),
    layer: {
      ...norms(twoNorms, 1024),
      ...norms(['self_attn.q_norm', 'self_attn.k_norm'], 128),
      ...attention(1024, 2048, 1024),
      ...gated(1024, 3072),
    },
    numParameters: 596_049_920,
    expected: { headDim: 128, slidingWindow: 0, contextLength: 40960 },
  },
  {
    name: 'phi-2',
    settings: {
      model_type: 'phi',
      hidden_act: 'gelu_new',
      hidden_size: 2560,
      intermediate_size: 10240,
      layer_norm_eps: 1e-5,
      max_position_embeddings: 2048,
      num_attention_heads: 32,
      num_hidden_layers: 32,
      num_key_value_heads: 32,
      partial_rotary_factor: 0.4,
      qk_layernorm: false,
      rope_scaling: null,
      rope_theta: 10000.0,
      tie_word_embeddings: false,
      vocab_size: 51200,
    },
    outer: {
      'model.embed_tokens.weight': [51200, 2560],
      ...norms(['model.final_layernorm'], 2560, true),
      ...linear('lm_head', 51200, 2560, true),
    },
    layer: {
      ...norms(['input_layernorm'], 2560, true),
      ...attention(2560, 2560, 2560, 'qkvo', 'dense'),
      ...linear('mlp.fc1', 10240, 2560, true),
      ...linear('mlp.fc2', 2560, 10240, true),
    },
    numParameters: 2_779_683_840,
    expected: { headDim: 80, activation: 'gelu-tanh', rope: { rotaryDim: 32 } },
  },
  {
    name: 'Phi-3-mini-4k-instruct',
    settings: {
      model_type: 'phi3',
      attention_bias: false,
      hidden_act: 'silu',
      hidden_size: 3072,
      intermediate_size: 8192,
      max_position_embeddings: 4096,
      num_attention_heads: 32,
      num_hidden_layers: 32,
      num_key_value_heads: 32,
      original_max_position_embeddings: 4096,
      rms_norm_eps: 1e-5,
      rope_scaling: null,
      rope_theta: 10000.0,
      sliding_window: 2047,
      tie_word_embeddings: false,
      vocab_size: 32064,
    },
    outer: outer(32064, 3072, false),
    layer: {
      ...norms(twoNorms, 3072),
      ...linear('self_attn.qkv_proj', 9216, 3072),
      ...linear('self_attn.o_proj', 3072, 3072),
      ...linear('mlp.gate_up_proj', 16384, 3072),
      ...linear('mlp.down_proj', 3072, 8192),
    },
    numParameters: 3_821_079_552,
    expected: { headDim: 96, slidingWindow: 2047, rope: { rotaryDim: 96 } },
  },
  {
    name: 'gemma-2b',
    settings: {
      model_type: 'gemma',
      attention_bias: false,
      head_dim: 256,
      hidden_act: 'gelu',
      hidden_activation: null,
      hidden_size: 2048,
      intermediate_size: 16384,
      max_position_embeddings: 8192,
      num_attention_heads: 8,
      num_hidden_layers: 18,
      num_key_value_heads: 1,
      rms_norm_eps: 1e-6,
      rope_scaling: null,
      rope_theta: 10000.0,
      vocab_size: 256000,
    },
    outer: outer(256000, 2048, true),
    layer: { ...norms(twoNorms, 2048), ...attention(2048, 2048, 256), ...gated(2048, 16384) },
    numParameters: 2_506_172_416,
    expected: { activation: 'gelu-tanh', isTied: true, headDim: 256 },
  },
  {
    name: 'gemma-2-2b',
    settings: {
      model_type: 'gemma2',
      attention_bias: false,
      attn_logit_softcapping: 50.0,
      cache_implementation: 'hybrid',
      final_logit_softcapping: 30.0,
      head_dim: 256,
      hidden_act: 'gelu_pytorch_tanh',
      hidden_activation: 'gelu_pytorch_tanh',
      hidden_size: 2304,
      intermediate_size: 9216,
      max_position_embeddings: 8192,
      num_attention_heads: 8,
      num_hidden_layers: 26,
      num_key_value_heads: 4,
      query_pre_attn_scalar: 256,
      rms_norm_eps: 1e-6,
      rope_theta: 10000.0,
      sliding_window: 4096,
      vocab_size: 256000,
    },
    outer: outer(256000, 2304, true),
    layer: { ...norms(fourNorms, 2304), ...attention(2304, 2048, 1024), ...gated(2304, 9216) },
    numParameters: 2_614_341_888,
    expected: { slidingWindow: 4096, isTied: true },
  },
  {
    name: 'gemma-3-1b-pt',
    settings: {
      model_type: 'gemma3_text',
      attention_bias: false,
      attn_logit_softcapping: null,
      final_logit_softcapping: null,
      head_dim: 256,
      hidden_activation: 'gelu_pytorch_tanh',
      hidden_size: 1152,
      intermediate_size: 6912,
      max_position_embeddings: 32768,
      num_attention_heads: 4,
      num_hidden_layers: 26,
      num_key_value_heads: 1,
      query_pre_attn_scalar: 256,
      rms_norm_eps: 1e-6,
      rope_local_base_freq: 10000,
      rope_scaling: null,
      rope_theta: 1000000,
      sliding_window: 512,
      sliding_window_pattern: 6,
      vocab_size: 262144,
    },
    outer: outer(262144, 1152, true),
    layer: {
      ...norms(fourNorms, 1152),
      ...norms(['self_attn.q_norm', 'self_attn.k_norm'], 256),
      ...attention(1152, 1024, 256),
      ...gated(1152, 6912),
    },
    numParameters: 999_885_952,
    expected: {
      slidingWindow: 512,
      rope: { base: 1e6 },
      windowedLayers: Array.from({ length: 26 }, (_, layer) => layer % 6 !== 5),
    },
  },
  {
    name: 'gpt2',
    settings: {
      model_type: 'gpt2',
      activation_function: 'gelu_new',
      architectures: ['GPT2LMHeadModel'],
      layer_norm_epsilon: 1e-5,
      n_ctx: 1024,
      n_embd: 768,
      n_head: 12,
      n_layer: 12,
      n_positions: 1024,
      vocab_size: 50257,
    },
    outer: { 'wte.weight': [50257, 768], 'wpe.weight': [1024, 768], ...norms(['ln_f'], 768, true) },
    layerPrefix: 'h',
    layer: {
      ...norms(['ln_1', 'ln_2'], 768, true),
      'attn.c_attn.weight': [768, 2304],
      'attn.c_attn.bias': [2304],
      'attn.c_proj.weight': [768, 768],
      'attn.c_proj.bias': [768],
      'mlp.c_fc.weight': [768, 3072],
      'mlp.c_fc.bias': [3072],
      'mlp.c_proj.weight': [3072, 768],
      'mlp.c_proj.bias': [768],
    },
    numParameters: 124_439_808,
    expected: { ffnDim: 3072, maxPositions: 1024, contextLength: 1024, isTied: true },
  },
  {
    name: 'starcoder2-3b',
    settings: {
      model_type: 'starcoder2',
      hidden_act: 'gelu_pytorch_tanh',
      hidden_size: 3072,
      intermediate_size: 12288,
      layer_norm_epsilon: 1e-5,
      max_position_embeddings: 16384,
      mlp_type: 'default',
      norm_epsilon: 1e-5,
      norm_type: 'layer_norm',
      num_attention_heads: 24,
      num_hidden_layers: 30,
      num_key_value_heads: 2,
      rope_theta: 999999.4420358813,
      sliding_window: 4096,
      use_bias: true,
      vocab_size: 49152,
    },
    outer: outer(49152, 3072, true, true),
    layer: {
      ...norms(twoNorms, 3072, true),
      ...attention(3072, 3072, 256, 'qkvo'),
      ...linear('mlp.c_fc', 12288, 3072, true),
      ...linear('mlp.c_proj', 3072, 12288, true),
    },
    numParameters: 3_030_371_328,
    expected: { headDim: 128, slidingWindow: 4096, isTied: true },
  },
  {
    name: 'stablelm-2-1_6b',
    settings: {
      model_type: 'stablelm',
      hidden_act: 'silu',
      hidden_size: 2048,
      intermediate_size: 5632,
      layer_norm_eps: 1e-5,
      max_position_embeddings: 4096,
      num_attention_heads: 32,
      num_hidden_layers: 24,
      num_key_value_heads: 32,
      partial_rotary_factor: 0.25,
      qk_layernorm: false,
      rope_theta: 10000,
      tie_word_embeddings: false,
      use_parallel_residual: false,
      use_qkv_bias: true,
      vocab_size: 100352,
    },
    outer: outer(100352, 2048, false, true),
    layer: { ...norms(twoNorms, 2048, true), ...attention(2048, 2048, 2048, 'qkv'), ...gated(2048, 5632) },
    numParameters: 1_644_515_328,
    expected: { headDim: 64, rope: { rotaryDim: 16 } },
  },
];

function fileOf({ settings, outer: shapes, layer, layerPrefix = 'model.layers' }: Published): ModelFile {
  const tensors = new Map<string, StoredTensor>();
  const add = (name: string, shape: Shape): void => {
    const read = (): Promise<void> => Promise.reject(new Error('describing a model reads no data'));
    tensors.set(name, { name, dtype: 'bf16', shape, sizeBytes: tensorBytes('bf16', shape), read });
  };
  for (const [name, shape] of Object.entries(shapes)) add(name, shape);
  const numLayers = (settings['num_hidden_layers'] ?? settings['n_layer']) as number;
  for (let index = 0; index < numLayers; index++) {
    for (const [name, shape] of Object.entries(layer)) add(`${layerPrefix}.${index}.${name}`, shape);
  }
  const store = { name: 'model.safetensors', tensors, close: async () => undefined };
  return { format: 'safetensors', fields: Fields.ofJson('config.json', settings), store };
}

const capacities = {
  maxTokens: 64,
  maxSequences: 1,
  maxOutputRows: 16,
  cache: { numBlocks: 8, blockSize: 64, maxBlocksPerSequence: 8, dtype: { keys: 'f16', values: 'f16' } },
  topK: 64,
} as const;

describe.each(published)('$name', (model) => {
  test('config, all weights and a valid program', async () => {
    const description = await describeModel(fileOf(model));
    expect(description.config).toMatchObject(model.expected);
    const shapes = [...description.weights.values()].map(({ shape }) => shape);
    const numParameters = shapes.reduce((sum, shape) => sum + shape.reduce((product, dim) => product * dim, 1), 0);
    expect(numParameters).toBe(model.numParameters);
    const program = description.buildProgram(capacities);
    expect(() => validateProgram(program)).not.toThrow();
    const names = new Set(program.buffers.map(({ name }) => name));
    expect([...description.weights.keys()].filter((name) => !names.has(name))).toEqual([]); // every weight is used
  });
});

test('names without prefix, as in models saved without the output matrix', async () => {
  const model = published.find(({ name }) => name === 'Qwen3-0.6B') as Published;
  const file = fileOf(model);
  const tensors = new Map([...file.store.tensors].map(([name, tensor]) => [name.replace(/^model\./, ''), tensor]));
  const bare = await describeModel({ ...file, store: { ...file.store, tensors } });
  expect([...bare.weights.keys()]).toEqual([...(await describeModel(file)).weights.keys()]);
});
