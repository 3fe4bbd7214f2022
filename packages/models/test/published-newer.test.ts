/** Configs of published models of 2024 and later. */
import { test } from 'vitest';
import { attention, expectPublished, gated, norms, outer, twoNorms, type Published } from './published-files.js';

const olmoNorms = {
  ...norms(['post_attention_layernorm', 'post_feedforward_layernorm'], 4096),
  ...norms(['self_attn.q_norm', 'self_attn.k_norm'], 4096),
};

const published: readonly Published[] = [
  {
    name: 'OLMo-2-1124-7B',
    settings: {
      model_type: 'olmo2',
      attention_bias: false,
      hidden_act: 'silu',
      hidden_size: 4096,
      intermediate_size: 11008,
      max_position_embeddings: 4096,
      num_attention_heads: 32,
      num_hidden_layers: 32,
      num_key_value_heads: 32,
      rms_norm_eps: 1e-6,
      rope_scaling: null,
      rope_theta: 500000,
      tie_word_embeddings: false,
      vocab_size: 100352,
    },
    outer: outer(100352, 4096, false),
    layer: { ...olmoNorms, ...attention(4096, 4096, 4096), ...gated(4096, 11008) },
    numParameters: 7_298_617_344,
    expected: { headDim: 128, slidingWindow: 0, rope: { base: 5e5, layout: 'halves' } },
  },
  {
    name: 'Olmo-3-1025-7B',
    settings: {
      model_type: 'olmo3',
      attention_bias: false,
      hidden_act: 'silu',
      hidden_size: 4096,
      intermediate_size: 11008,
      max_position_embeddings: 65536,
      num_attention_heads: 32,
      num_hidden_layers: 32,
      num_key_value_heads: 32,
      rms_norm_eps: 1e-6,
      rope_scaling: {
        attention_factor: 1.2079441541679836,
        beta_fast: 32.0,
        beta_slow: 1.0,
        factor: 8.0,
        original_max_position_embeddings: 8192,
        rope_type: 'yarn',
      },
      rope_theta: 500000,
      sliding_window: 4096,
      tie_word_embeddings: false,
      vocab_size: 100278,
    },
    outer: outer(100278, 4096, false),
    layer: { ...olmoNorms, ...attention(4096, 4096, 4096), ...gated(4096, 11008) },
    numParameters: 7_298_011_136,
    expected: {
      slidingWindow: 4096,
      rope: { scaling: { type: 'yarn', factor: 8 } },
      windowedLayers: Array.from({ length: 32 }, (_, layer) => layer % 4 !== 3),
    },
  },
  {
    name: 'granite-3.3-8b-instruct',
    settings: {
      model_type: 'granite',
      attention_bias: false,
      attention_multiplier: 0.0078125,
      embedding_multiplier: 12.0,
      hidden_act: 'silu',
      hidden_size: 4096,
      intermediate_size: 12800,
      logits_scaling: 16.0,
      max_position_embeddings: 131072,
      mlp_bias: false,
      num_attention_heads: 32,
      num_hidden_layers: 40,
      num_key_value_heads: 8,
      residual_multiplier: 0.22,
      rms_norm_eps: 1e-5,
      rope_scaling: null,
      rope_theta: 10000000.0,
      tie_word_embeddings: true,
      vocab_size: 49159,
    },
    outer: outer(49159, 4096, true),
    layer: { ...norms(twoNorms, 4096), ...attention(4096, 4096, 1024), ...gated(4096, 12800) },
    numParameters: 8_170_864_640,
    expected: { headDim: 128, isTied: true, rope: { base: 1e7 } },
  },
];

test.each(published)('$name: config, all weights and a valid program', expectPublished);
