/** Published configs, with tensors of the right names and shapes and no data. */
import type { StoredTensor, TensorStore } from '@winnow/bytes';
import { validateProgram } from '@winnow/ops';
import { tensorBytes, type DType, type Shape } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import { Fields } from './file/fields.js';
import type { ModelFile } from './program/architecture.js';
import { describeModel } from './registry.js';

interface Published {
  readonly name: string;
  readonly settings: Readonly<Record<string, unknown>>;
  readonly dtype: DType;
  /** Tensors that some checkpoints of the model contain besides the weights. */
  readonly extras?: readonly (readonly [string, Shape])[];
  readonly numParameters: number;
  readonly expected: Readonly<Record<string, unknown>>;
}

const llama3Scaling = {
  factor: 32.0,
  high_freq_factor: 4.0,
  low_freq_factor: 1.0,
  original_max_position_embeddings: 8192,
  rope_type: 'llama3',
};

// Parameter counts of the model cards, as sums over the tensors.
const published: readonly Published[] = [
  {
    name: 'TinyLlama-1.1B-Chat-v1.0',
    dtype: 'bf16',
    numParameters: 1_100_048_384,
    settings: {
      architectures: ['LlamaForCausalLM'],
      attention_bias: false,
      bos_token_id: 1,
      eos_token_id: 2,
      hidden_act: 'silu',
      hidden_size: 2048,
      initializer_range: 0.02,
      intermediate_size: 5632,
      max_position_embeddings: 2048,
      model_type: 'llama',
      num_attention_heads: 32,
      num_hidden_layers: 22,
      num_key_value_heads: 4,
      pretraining_tp: 1,
      rms_norm_eps: 1e-5,
      rope_scaling: null,
      rope_theta: 10000.0,
      tie_word_embeddings: false,
      torch_dtype: 'bfloat16',
      use_cache: true,
      vocab_size: 32000,
    },
    expected: { headDim: 64, numKvHeads: 4, isTied: false, contextLength: 2048, slidingWindow: 0 },
  },
  {
    name: 'SmolLM2-135M',
    dtype: 'bf16',
    numParameters: 134_515_008,
    settings: {
      architectures: ['LlamaForCausalLM'],
      attention_bias: false,
      attention_dropout: 0.0,
      bos_token_id: 0,
      eos_token_id: 0,
      hidden_act: 'silu',
      hidden_size: 576,
      initializer_range: 0.041666666666666664,
      intermediate_size: 1536,
      is_llama_config: true,
      max_position_embeddings: 8192,
      model_type: 'llama',
      num_attention_heads: 9,
      num_hidden_layers: 30,
      num_key_value_heads: 3,
      pretraining_tp: 1,
      rms_norm_eps: 1e-5,
      rope_interleaved: false,
      rope_scaling: null,
      rope_theta: 100000,
      tie_word_embeddings: true,
      vocab_size: 49152,
    },
    expected: { headDim: 64, numHeads: 9, numKvHeads: 3, isTied: true, rope: { base: 100000, rotaryDim: 64 } },
  },
  {
    name: 'Llama-3.2-1B',
    dtype: 'bf16',
    numParameters: 1_235_814_400,
    settings: {
      architectures: ['LlamaForCausalLM'],
      attention_bias: false,
      attention_dropout: 0.0,
      bos_token_id: 128000,
      eos_token_id: [128001, 128008, 128009],
      head_dim: 64,
      hidden_act: 'silu',
      hidden_size: 2048,
      intermediate_size: 8192,
      max_position_embeddings: 131072,
      mlp_bias: false,
      model_type: 'llama',
      num_attention_heads: 32,
      num_hidden_layers: 16,
      num_key_value_heads: 8,
      rms_norm_eps: 1e-5,
      rope_scaling: llama3Scaling,
      rope_theta: 500000.0,
      tie_word_embeddings: true,
      vocab_size: 128256,
    },
    expected: {
      isTied: true,
      contextLength: 131072,
      rope: { base: 500000, scaling: { type: 'llama3', factor: 32, originalContextLength: 8192 } },
    },
  },
  {
    name: 'Mistral-7B-v0.1',
    dtype: 'bf16',
    numParameters: 7_241_732_096,
    settings: {
      architectures: ['MistralForCausalLM'],
      bos_token_id: 1,
      eos_token_id: 2,
      hidden_act: 'silu',
      hidden_size: 4096,
      intermediate_size: 14336,
      max_position_embeddings: 32768,
      model_type: 'mistral',
      num_attention_heads: 32,
      num_hidden_layers: 32,
      num_key_value_heads: 8,
      rms_norm_eps: 1e-5,
      rope_theta: 10000.0,
      sliding_window: 4096,
      tie_word_embeddings: false,
      vocab_size: 32000,
    },
    expected: { headDim: 128, slidingWindow: 4096, isTied: false },
  },
  {
    name: 'Mistral-7B-v0.3',
    dtype: 'bf16',
    numParameters: 7_248_023_552,
    settings: {
      architectures: ['MistralForCausalLM'],
      attention_dropout: 0.0,
      bos_token_id: 1,
      eos_token_id: 2,
      head_dim: null,
      hidden_act: 'silu',
      hidden_size: 4096,
      intermediate_size: 14336,
      max_position_embeddings: 32768,
      model_type: 'mistral',
      num_attention_heads: 32,
      num_hidden_layers: 32,
      num_key_value_heads: 8,
      rms_norm_eps: 1e-5,
      rope_theta: 1000000.0,
      sliding_window: null,
      tie_word_embeddings: false,
      vocab_size: 32768,
    },
    expected: { headDim: 128, slidingWindow: 0, rope: { base: 1_000_000 } },
  },
  {
    name: 'Llama-2-7b-hf',
    dtype: 'f16',
    numParameters: 6_738_415_616,
    extras: Array.from(
      { length: 32 },
      (_, layer) => [`model.layers.${layer}.self_attn.rotary_emb.inv_freq`, [64]] as const,
    ),
    settings: {
      architectures: ['LlamaForCausalLM'],
      bos_token_id: 1,
      eos_token_id: 2,
      hidden_act: 'silu',
      hidden_size: 4096,
      intermediate_size: 11008,
      max_position_embeddings: 4096,
      model_type: 'llama',
      num_attention_heads: 32,
      num_hidden_layers: 32,
      num_key_value_heads: 32,
      pretraining_tp: 1,
      rms_norm_eps: 1e-5,
      rope_scaling: null,
      tie_word_embeddings: false,
      vocab_size: 32000,
    },
    expected: { numKvHeads: 32, headDim: 128, rope: { base: 10000 } },
  },
];

function fileOf({ settings, dtype, extras = [] }: Published): ModelFile {
  const of = (name: string): number => settings[name] as number;
  const [hidden, ffn, heads] = [of('hidden_size'), of('intermediate_size'), of('num_attention_heads')];
  const headDim = (settings['head_dim'] as number | null | undefined) ?? hidden / heads;
  const kv = of('num_key_value_heads') * headDim;
  const shapes: (readonly [string, Shape])[] = [
    ['model.embed_tokens.weight', [of('vocab_size'), hidden]],
    ['model.norm.weight', [hidden]],
    ...extras,
  ];
  if (settings['tie_word_embeddings'] !== true) shapes.push(['lm_head.weight', [of('vocab_size'), hidden]]);
  for (let layer = 0; layer < of('num_hidden_layers'); layer++) {
    const at = `model.layers.${layer}`;
    shapes.push(
      [`${at}.input_layernorm.weight`, [hidden]],
      [`${at}.post_attention_layernorm.weight`, [hidden]],
      [`${at}.self_attn.q_proj.weight`, [heads * headDim, hidden]],
      [`${at}.self_attn.k_proj.weight`, [kv, hidden]],
      [`${at}.self_attn.v_proj.weight`, [kv, hidden]],
      [`${at}.self_attn.o_proj.weight`, [hidden, heads * headDim]],
      [`${at}.mlp.gate_proj.weight`, [ffn, hidden]],
      [`${at}.mlp.up_proj.weight`, [ffn, hidden]],
      [`${at}.mlp.down_proj.weight`, [hidden, ffn]],
    );
  }
  const tensors = new Map<string, StoredTensor>(
    shapes.map(([name, shape]) => [
      name,
      {
        name,
        dtype,
        shape,
        sizeBytes: tensorBytes(dtype, shape),
        read: () => Promise.reject(new Error('describing a model reads no data')),
      },
    ]),
  );
  const store: TensorStore = { name: 'model.safetensors', tensors, close: async () => undefined };
  // through JSON, as from a file
  const fields = Fields.ofJson('config.json', JSON.parse(JSON.stringify(settings)));
  return { format: 'safetensors', fields, store };
}

const capacities = {
  maxTokens: 64,
  maxSequences: 1,
  maxOutputRows: 16,
  cache: { numBlocks: 8, blockSize: 64, maxBlocksPerSequence: 8, dtype: { keys: 'f16', values: 'f16' } as const },
  topK: 64,
};

describe.each(published)('$name', (model) => {
  test('config, all weights and a valid program', async () => {
    const description = await describeModel(fileOf(model));
    expect(description.config).toMatchObject(model.expected);
    const numParameters = [...description.weights.values()].reduce(
      (sum, { shape }) => sum + shape.reduce((product, dim) => product * dim, 1),
      0,
    );
    expect(numParameters).toBe(model.numParameters);
    const program = description.buildProgram(capacities);
    expect(() => validateProgram(program)).not.toThrow();
    // vectors are stored as f32, everything else as in the file
    for (const { shape, dtype } of description.weights.values())
      expect(dtype).toBe(shape.length < 2 ? 'f32' : model.dtype);
    const weightBytes = program.buffers.reduce(
      (sum, { usage, sizeBytes }) => (usage === 'weights' ? sum + sizeBytes : sum),
      0,
    );
    const described = [...description.weights.values()].reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
    const constants = [...description.constants.values()].reduce((sum, { byteLength }) => sum + byteLength, 0);
    expect(weightBytes).toBe(described + constants); // only tensors that a program uses are loaded
  });
});
