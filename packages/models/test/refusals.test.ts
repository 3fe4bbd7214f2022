/** Unsupported settings that would change results, and files with false layer counts. */
import { FormatError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { architectures, describeModel } from '../src/index.js';
import { modelFile } from './run-model.js';

const sizes = {
  hidden_size: 8,
  intermediate_size: 12,
  num_hidden_layers: 2,
  num_attention_heads: 2,
  num_key_value_heads: 2,
  head_dim: 4,
  vocab_size: 3,
};
const mambaTable = 'backbone.embeddings.weight';
const embedding = { shape: [3, 8], values: new Float32Array(24) };
/** These tensors and another, since a file with two layers has at least two. */
const withRoom = (tensors: readonly (readonly [string, typeof embedding])[]): Map<string, typeof embedding> =>
  new Map([...tensors, ['other.weight', embedding]]);
const latents = {
  kv_lora_rank: 4,
  qk_rope_head_dim: 2,
  qk_nope_head_dim: 2,
  n_routed_experts: 4,
  moe_intermediate_size: 4,
};
const eightExperts = { n_routed_experts: 8, num_experts_per_tok: 3 };
const topOne = { num_local_experts: 4, num_experts_per_tok: 1 };
const unshared = { num_kv_shared_layers: 0 };
const globalRope = (changes: object): object => ({
  rope_parameters: { full_attention: { rope_type: 'proportional', rope_theta: 10_000, ...changes } },
});
const rope = (type: string, more: object = {}): object => ({ rope_scaling: { type, ...more } });

test.each([
  [
    'qwen2',
    { use_sliding_window: false, layer_types: ['sliding_attention', 'full_attention'] },
    /layer_types: expected/,
  ],
  ['qwen2', { layer_types: ['full_attention'] }, /layer_types: expected an array of 2, got an array of 1/],
  ['qwen2', { layer_types: ['linear_attention', 'full_attention'] }, /layer_types: .* got "linear_attention"/],
  ['qwen2', { use_sliding_window: 1 }, /use_sliding_window: expected true or false/],
  ['qwen3', { hidden_act: 'tanh' }, /hidden_act: expected silu/],
  ['qwen3', rope('longrope'), /rope_scaling\.rope_type: expected .* got "longrope"/],
  ['qwen3', rope('yarn', { factor: 2, truncate: 1 }), /truncate: expected true or false/],
  ['qwen3', { qk_layernorm: true }, /qk_layernorm: expected false, got true/],
  ['phi', { partial_rotary_factor: 0.1 }, /partial_rotary_factor: expected an even number of rotated dimensions/],
  ['phi3', rope('longrope', { short_factor: [1], long_factor: [1, 2] }), /short_factor: expected 2 numbers/],
  ['phi3', rope('su', { short_factor: [1, 1] }), /long_factor: expected 2 numbers, got nothing/],
  [
    'phi3',
    rope('longrope', { short_mscale: 1.1 }),
    /short_mscale: expected no value, because it is not supported, got 1\.1/,
  ],
  ['phi3', rope('longrope', { short_factor: [1, 0], long_factor: [1, 1] }), undefined],
  ['gemma', { final_logit_softcapping: 30 }, /final_logit_softcapping: expected 0, got 30/],
  ['gemma2', { query_pre_attn_scalar: 0 }, /query_pre_attn_scalar: expected a positive number, got 0/],
  ['gemma2', { attn_logit_softcapping: -1 }, /attn_logit_softcapping: expected a positive number or none, got -1/],
  ['gemma3_text', { attn_logit_softcapping: 50 }, /attn_logit_softcapping: expected 0, got 50/],
  ['gemma3', { use_bidirectional_attention: true }, /use_bidirectional_attention: expected false, got true/],
  ['gemma3_text', { sliding_window_pattern: 0 }, /sliding_window_pattern: expected a positive integer/],
  ['gemma3n_text', { ...unshared, altup_num_inputs: 1 }, /altup_num_inputs: expected a number from 2 to 64, got 1/],
  ['gemma3n_text', { ...unshared, altup_active_idx: 4 }, /altup_active_idx: expected a number below 4, got 4/],
  [
    'gemma3n_text',
    { ...unshared, activation_sparsity_pattern: [1, 0] },
    /sparsity_pattern: expected an array of 2 numbers/,
  ],
  [
    'gemma3n_text',
    { ...unshared, intermediate_size: [12] },
    /intermediate_size: expected an array of 2, got an array of 1/,
  ],
  ['gemma4_text', { use_bidirectional_attention: 'all' }, /expected vision or false, got "all"/],
  [
    'gemma4_text',
    { num_kv_shared_layers: 2 },
    /layers that share keys: expected an earlier layer of the same type for each, got 2/,
  ],
  [
    'gemma4_text',
    { num_kv_shared_layers: 1, layer_types: ['sliding_attention', 'full_attention'] },
    /layers that share keys: expected an earlier layer of the same type for each, got 1/,
  ],
  ['gemma4_text', globalRope({ rope_type: 'yarn' }), /rope_type: expected default or proportional, got "yarn"/],
  ['gemma4_text', globalRope({ factor: 2 }), /factor: expected 1, got 2/],
  ['gemma4_text', globalRope({ partial_rotary_factor: 2 }), /expected a number from 0 to 1, got 2/],
  ['gemma4_text', { per_layer_config: { 0: { head_dim: 8 } } }, /per_layer_config: expected head_dim and/],
  ['gemma4_text', { per_layer_config: { 1: { sliding_window: 8 } } }, /per_layer_config: expected head_dim and/],
  ['gemma4_text', { per_layer_config: { 1: { num_key_value_heads: 3 } } }, /KV heads: expected a divisor of 2 heads/],
  ['deepseek_v2', { topk_method: 'noaux_tc' }, /topk_method: expected greedy or group_limited_greedy, got/],
  [
    'deepseek_v3',
    { ...latents, ...eightExperts, n_group: 5 },
    /groups of experts: expected a divisor of 8 with groups of at least 2, got 5/,
  ],
  [
    'deepseek_v3',
    { ...latents, ...eightExperts, n_group: 4, topk_group: 1 },
    /selected groups of experts: expected at most 4, with 3 experts or more, got 1/,
  ],
  ['deepseek_v3', { ...latents, rope_interleave: false }, /rope_interleave: expected true, got false/],
  [
    'granitemoehybrid',
    { num_local_experts: 0, time_step_limit: [0, 0.1] },
    /time_step_limit: expected no limit above 0, got an array of 2/,
  ],
  ['granitemoehybrid', { mamba_n_groups: 2 }, /mamba_n_groups: expected 1, got 2/],
  [
    'llama4_text',
    { num_local_experts: 4, num_experts_per_tok: 2, no_rope_layers: [] },
    /num_experts_per_tok: expected 1, got 2/,
  ],
  ['llama4_text', { ...topOne, attention_chunk_size: null }, /attention_chunk_size: expected a chunk size/],
  ['llama4_text', { ...topOne, layer_types: ['sliding_attention', 'full_attention'] }, /expected chunked_attention or/],
  ['llama4_text', { ...topOne, no_rope_layers: [1] }, /no_rope_layers: expected an array of 2, got an array of 1/],
  [
    'llama4_text',
    { ...topOne, no_rope_layers: [1, 0], max_position_embeddings: 2 ** 25 },
    /max_position_embeddings: expected at most 16777216 positions/,
  ],
  ['falcon_h1', { mlp_bias: true }, /mlp_bias: expected false, got true/],
  [
    'falcon_h1',
    { mamba_rms_norm: true, mamba_norm_before_gate: true },
    /mamba_norm_before_gate: expected false with mamba_rms_norm, got true/,
  ],
  ['falcon_h1', { hidden_act: 'gelu' }, /hidden_act: expected silu or swish, got "gelu"/],
  ['falcon_h1', { time_step_limit: [0.001, 0.1] }, /time_step_limit: expected no limit above 0/],
  ['falcon_h1', { key_multiplier: 0 }, /key_multiplier: expected a positive number that f32 can hold, got 0/],
  ['falcon_h1', { ssm_multipliers: [1, 1] }, /ssm_multipliers: expected an array of 5, got an array of 2/],
  [
    'falcon_h1',
    { mamba_n_heads: 3 },
    /heads of state-space layers: expected a divisor of 1024, their inner size, got 3/,
  ],
  ['mamba2', { num_heads: 4, head_dim: 4 }, /groups of state-space layers: expected a divisor of 4, got 8/],
  ['mamba2', { rms_norm: false }, /rms_norm: expected true, got false/],
  ['mamba', { use_bias: true }, /use_bias: expected false, got true/],
  ['falcon_mamba', { mixer_rms_eps: 1e-5 }, /mixer_rms_eps: expected 0.000001, got 0.00001/],
  ['starcoder2', { mlp_type: 'gated' }, /mlp_type: expected default, got "gated"/],
  ['starcoder2', { norm_type: 'rms' }, /norm_type: expected layer_norm, got "rms"/],
  ['gpt2', { add_cross_attention: true }, /add_cross_attention: expected false, got true/],
  ['llama', { num_local_experts: 4 }, /num_local_experts: expected 0, got 4/],
  ['llama', { embedding_multiplier: 12 }, /embedding_multiplier: expected 1, got 12/],
  ['llama', { rope_interleaved: true }, /rope_interleaved: expected false, got true/],
])('config.json of %s: %o', async (model_type, changes, message) => {
  const others: Record<string, string> = {
    gpt2: 'wte.weight',
    mamba: mambaTable,
    mamba2: mambaTable,
    falcon_mamba: mambaTable,
  };
  const name = others[model_type] ?? 'model.embed_tokens.weight';
  const weights = withRoom([[name, embedding]]);
  const described = describeModel(modelFile('safetensors', { ...sizes, model_type, ...changes }, weights));
  await expect(described).rejects.toThrow(FormatError);
  if (message !== undefined) await expect(described).rejects.toThrow(message);
});

const swa = { 'attention.key_length_swa': 4, 'attention.key_length': 4, 'attention.sliding_window': 4 };

const gguf = (architecture: string, changes: object): Record<string, unknown> => {
  const settings = {
    embedding_length: 8,
    block_count: 2,
    feed_forward_length: 12,
    context_length: 64,
    'attention.head_count': 2,
    'attention.layer_norm_rms_epsilon': 1e-5,
    'attention.layer_norm_epsilon': 1e-5,
    ...changes,
  };
  return {
    'general.architecture': architecture,
    ...Object.fromEntries(Object.entries(settings).map(([key, value]) => [`${architecture}.${key}`, value])),
  };
};

test.each([
  ['qwen2', { expert_count: 4 }, /qwen2\.expert_count: expected 0, got 4/],
  ['qwen3', { 'attention.causal': false }, /qwen3\.attention\.causal: expected true, got false/],
  ['qwen3', { 'rope.scaling.attn_factor': 2 }, /qwen3\.rope\.scaling\.attn_factor: expected 1 for type linear, got 2/],
  ['phi2', { 'attention.clamp_kqv': 8 }, /phi2\.attention\.clamp_kqv: expected 0, got 8/],
  ['gemma', { attn_logit_softcapping: 50 }, /gemma\.attn_logit_softcapping: expected 0, got 50/],
  ['gemma3', { 'attention.causal': false }, /gemma3\.attention\.causal: expected true, got false/],
  ['gemma3', { attn_logit_softcapping: 50 }, /gemma3\.attn_logit_softcapping: expected 0, got 50/],
  [
    'gemma3',
    { 'attention.sliding_window': 4, 'attention.sliding_window_pattern': [1] },
    /sliding_window_pattern: expected an array of 2/,
  ],
  ['gemma4', { ...swa, 'attention.sliding_window': 0 }, /sliding_window: expected a positive integer, got 0/],
  [
    'gemma4',
    { ...swa, 'attention.head_count_kv': [1, 2], 'attention.sliding_window_pattern': [1, 1] },
    /head_count_kv: expected one number for layers with the sliding window and one for the others/,
  ],
  ['gemma4', { ...swa, feed_forward_length: [12] }, /feed_forward_length: expected an array of 2, got an array of 1/],
  ['llama4', { 'attention.sliding_window': 0 }, /llama4\.attention\.sliding_window: expected a chunk size/],
  [
    'llama4',
    { expert_count: 4, expert_used_count: 2, interleave_moe_layer_step: 1 },
    /llama4\.expert_used_count: expected 1, got 2/,
  ],
  ['gemma2', { 'rope.scaling.type': 'longrope' }, /gemma2\.rope\.scaling\.type: expected none, linear, yarn/],
  ['starcoder2', { 'attention.max_alibi_bias': 8 }, /max_alibi_bias: expected 0, got 8/],
  ['stablelm', { logit_scale: 2 }, /stablelm\.logit_scale: expected 0 or 1, got 2/],
])('GGUF of %s: %o', async (architecture, changes, message) => {
  const weights = withRoom([['token_embd.weight', embedding]]);
  const described = describeModel(modelFile('gguf', gguf(architecture, changes), weights));
  await expect(described).rejects.toThrow(FormatError);
  await expect(described).rejects.toThrow(message);
});

test.each(['qwen2', 'gemma2', 'gemma3', 'phi3', 'gpt2', 'stablelm'])('%s of a billion layers', async (architecture) => {
  const weights = new Map([['token_embd.weight', embedding]]);
  const settings = gguf(architecture, { block_count: 1e9, 'attention.sliding_window': 4 });
  const described = describeModel(modelFile('gguf', settings, weights));
  await expect(described).rejects.toThrow(FormatError);
  await expect(described).rejects.toThrow(/layers: expected at most 1, the number of tensors, got 1000000000/);
});

test.each([
  ['gguf', 'general.architecture', 'ggufNames'],
  ['safetensors', 'model_type', 'hubNames'],
] as const)(
  'an unknown architecture of a %s file is named, and the known ones listed',
  async (format, field, names) => {
    const described = describeModel(modelFile(format, { [field]: 'rwkv7' }, new Map()));
    await expect(described).rejects.toThrow(FormatError);
    await expect(described).rejects.toThrow(`${field}: architecture "rwkv7" is not supported`);
    for (const name of architectures.flatMap((architecture) => architecture[names])) {
      await expect(described).rejects.toThrow(new RegExp(`expected one of .*\\b${name}\\b`));
    }
  },
);

test('a missing architecture', async () => {
  const described = describeModel(modelFile('gguf', {}, new Map()));
  await expect(described).rejects.toThrow(/general\.architecture: architecture nothing is not supported/);
});
