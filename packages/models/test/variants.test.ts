/** Settings of config.json that no golden model has, against a float64 pass. */
import { test } from 'vitest';
import {
  attentionShapes,
  expectTruth,
  ffn,
  gatedShapes,
  heads,
  hidden,
  layerShapes,
  linearShapes,
  normShapes,
  numLayers,
  outerShapes,
  plain,
  settingsOf,
  usual,
  usualLayer,
  vocab,
  type Shapes,
} from './small-models.js';
import { randomWeights } from './run-model.js';
import { geluTanh, layerNormOf, rmsOf, speeds, type TruthWeight } from './truth.js';

test.each([
  ['max_window_layers', { max_window_layers: 1 }, [false, true, true]],
  ['layer_types', { layer_types: ['sliding_attention', 'full_attention', 'sliding_attention'] }, [true, false, true]],
] as const)('qwen2: a window by %s, tied, grouped heads', async (_name, setting, windowed) => {
  const shape = heads(4, 2, 4);
  const weights = randomWeights({
    ...outerShapes(true),
    ...layerShapes({
      ...normShapes(['input_layernorm', 'post_attention_layernorm']),
      ...linearShapes({ ...attentionShapes(shape), ...gatedShapes }, false),
      'self_attn.q_proj.bias': [16],
      'self_attn.k_proj.bias': [8],
      'self_attn.v_proj.bias': [8],
    }),
  });
  const settings = {
    ...settingsOf(shape),
    ...setting,
    model_type: 'qwen2',
    head_dim: 4,
    rms_norm_eps: 1e-5,
    rope_theta: 500,
    tie_word_embeddings: true,
    use_sliding_window: true,
    sliding_window: 5,
  };
  await expectTruth(settings, weights, {
    ...usual,
    ...shape,
    output: 'model.embed_tokens',
    layer: (layer) => ({
      ...usualLayer(layer),
      rope: plain(500, 4),
      scale: 1 / 2,
      ...(windowed[layer] ? { window: 5 } : {}),
    }),
  });
});

test('qwen3: attention biases, heads larger than hiddenDim / numHeads', async () => {
  const shape = heads(3, 1, 6);
  const weights = randomWeights({
    ...outerShapes(false),
    ...layerShapes({
      ...normShapes(['input_layernorm', 'post_attention_layernorm']),
      ...linearShapes(attentionShapes(shape), true),
      ...linearShapes(gatedShapes, false),
      'self_attn.q_norm.weight': [6],
      'self_attn.k_norm.weight': [6],
    }),
  });
  const settings = { ...settingsOf(shape), model_type: 'qwen3', head_dim: 6, rms_norm_eps: 1e-5, attention_bias: true };
  const normWeight = (layer: number, which: string) => (i: number) =>
    weights.get(`model.layers.${layer}.self_attn.${which}_norm.weight`)?.values[i] as number;
  await expectTruth(settings, weights, {
    ...usual,
    ...shape,
    layer: (layer) => ({
      ...usualLayer(layer),
      rope: plain(10000, 6),
      scale: 1 / Math.sqrt(6),
      normHead: (x, which) => rmsOf(x, 1e-5, normWeight(layer, which)),
    }),
  });
});

test.each([false, true])('phi: GQA, another rotated share, head norms, tied %s', async (isTied) => {
  const shape = heads(2, 1, 6);
  const weights = randomWeights({
    ...outerShapes(isTied, 'model.final_layernorm', true),
    'lm_head.bias': [vocab],
    ...layerShapes({
      ...normShapes(['input_layernorm'], true),
      ...linearShapes({ ...attentionShapes(shape, 'dense'), 'mlp.fc1': [ffn, hidden], 'mlp.fc2': [hidden, ffn] }, true),
      ...Object.fromEntries(
        ['q', 'k'].flatMap((which) =>
          ['weight', 'bias'].map((part) => [`self_attn.${which}_layernorm.${part}`, [6]] as const),
        ),
      ),
    }),
  });
  const settings = {
    ...settingsOf(shape),
    model_type: 'phi',
    layer_norm_eps: 1e-5,
    partial_rotary_factor: 0.67,
    qk_layernorm: true,
    tie_word_embeddings: isTied,
  };
  const truthWeights = new Map(weights);
  if (isTied) truthWeights.set('lm_head.weight', weights.get('model.embed_tokens.weight') as TruthWeight);
  await expectTruth(
    settings,
    weights,
    {
      ...usual,
      ...shape,
      norm: 'layer',
      activation: geluTanh,
      outputNorm: 'model.final_layernorm',
      layer: (layer) => {
        const { gate: _gate, ffnNorm: _ffnNorm, ...names } = usualLayer(layer);
        const at = `model.layers.${layer}`;
        const part = (which: string, name: string) => (i: number) =>
          weights.get(`${at}.self_attn.${which}_layernorm.${name}`)?.values[i] as number;
        return {
          ...names,
          o: `${at}.self_attn.dense`,
          up: `${at}.mlp.fc1`,
          down: `${at}.mlp.fc2`,
          rope: plain(10000, 4),
          scale: 1 / Math.sqrt(6),
          normHead: (x, which) => layerNormOf(x, 1e-5, part(which, 'weight'), part(which, 'bias')),
        };
      },
    },
    { truthWeights },
  );
});

/** Splits fused matrices. */
function unfused(
  weights: ReadonlyMap<string, TruthWeight>,
  fused: Readonly<Record<string, readonly (readonly [name: string, numRows: number])[]>>,
): Map<string, TruthWeight> {
  const split = new Map(weights);
  for (let layer = 0; layer < numLayers; layer++) {
    for (const [name, parts] of Object.entries(fused)) {
      const { values, shape } = weights.get(`model.layers.${layer}.${name}.weight`) as TruthWeight;
      const rowLength = shape[1] as number;
      let begin = 0;
      for (const [part, numRows] of parts) {
        const own = values.subarray(begin * rowLength, (begin + numRows) * rowLength);
        split.set(`model.layers.${layer}.${part}.weight`, { shape: [numRows, rowLength], values: own });
        begin += numRows;
      }
    }
  }
  return split;
}

test.each([
  ['short', 14],
  ['long', 13],
] as const)(
  'phi3: %s factors for 14 tokens of a model for %i, partial rotation, a window, tied',
  async (which, original) => {
    const shape = heads(3, 1, 8);
    const weights = randomWeights({
      ...outerShapes(true),
      ...layerShapes({
        ...normShapes(['input_layernorm', 'post_attention_layernorm']),
        'self_attn.qkv_proj.weight': [40, hidden],
        'self_attn.o_proj.weight': [hidden, 24],
        'mlp.gate_up_proj.weight': [2 * ffn, hidden],
        'mlp.down_proj.weight': [hidden, ffn],
      }),
    });
    const factors = { short: [1, 1.5], long: [2, 7] };
    const settings = {
      ...settingsOf(shape),
      model_type: 'phi3',
      head_dim: 8,
      partial_rotary_factor: 0.5,
      tie_word_embeddings: true,
      sliding_window: 6,
      max_position_embeddings: 80,
      original_max_position_embeddings: original,
      rope_scaling: { type: 'longrope', short_factor: factors.short, long_factor: factors.long },
    };
    const truthWeights = unfused(weights, {
      'self_attn.qkv_proj': [
        ['self_attn.q_proj', 24],
        ['self_attn.k_proj', 8],
        ['self_attn.v_proj', 8],
      ],
      'mlp.gate_up_proj': [
        ['mlp.gate_proj', ffn],
        ['mlp.up_proj', ffn],
      ],
    });
    const rope = {
      speeds: speeds(10000, 4).map((speed, i) => speed / (factors[which][i] as number)),
      amplitude: Math.sqrt(1 + Math.log(80 / original) / Math.log(original)),
    };
    await expectTruth(
      settings,
      weights,
      {
        ...usual,
        ...shape,
        output: 'model.embed_tokens',
        layer: (layer) => ({ ...usualLayer(layer), rope, scale: 1 / Math.sqrt(8), window: 6 }),
      },
      { truthWeights },
    );
  },
);

test('starcoder2: no biases, a window, an untied output matrix', async () => {
  const shape = heads(2, 1, 6);
  const weights = randomWeights({
    ...outerShapes(false, 'model.norm', true),
    ...layerShapes({
      ...normShapes(['input_layernorm', 'post_attention_layernorm'], true),
      ...linearShapes({ ...attentionShapes(shape), 'mlp.c_fc': [ffn, hidden], 'mlp.c_proj': [hidden, ffn] }, false),
    }),
  });
  const settings = {
    ...settingsOf(shape),
    model_type: 'starcoder2',
    tie_word_embeddings: false,
    use_bias: false,
    sliding_window: 3,
    rope_theta: 300,
  };
  await expectTruth(settings, weights, {
    ...usual,
    ...shape,
    norm: 'layer',
    activation: geluTanh,
    layer: (layer) => {
      const { gate: _gate, ...names } = usualLayer(layer);
      const at = `model.layers.${layer}.mlp`;
      const scale = 1 / Math.sqrt(6);
      return { ...names, up: `${at}.c_fc`, down: `${at}.c_proj`, rope: plain(300, 6), window: 3, scale };
    },
  });
});

test.each([
  [true, true],
  [true, false],
  [false, true],
])('stablelm: parallel %s, norms per head %s, no biases, GQA', async (isParallel, hasHeadNorms) => {
  const shape = heads(4, 2, 4);
  const headNorm = (which: string, count: number): Shapes =>
    Object.fromEntries(
      Array.from({ length: count }, (_, head) => [`self_attn.${which}_layernorm.norms.${head}.weight`, [4]] as const),
    );
  const weights = randomWeights({
    ...outerShapes(false, 'model.norm', true),
    ...layerShapes({
      ...normShapes(['input_layernorm', ...(isParallel ? [] : ['post_attention_layernorm'])], true),
      ...linearShapes({ ...attentionShapes(shape), ...gatedShapes }, false),
      ...(hasHeadNorms ? { ...headNorm('q', 4), ...headNorm('k', 2) } : {}),
    }),
  });
  const settings = {
    ...settingsOf(shape),
    model_type: 'stablelm',
    head_dim: 4,
    partial_rotary_factor: 0.5,
    use_parallel_residual: isParallel,
    qk_layernorm: hasHeadNorms,
  };
  await expectTruth(settings, weights, {
    ...usual,
    ...shape,
    norm: 'layer',
    layer: (layer) => {
      const { ffnNorm, ...names } = usualLayer(layer);
      const normWeight = (which: string, head: number) => (i: number) =>
        weights.get(`model.layers.${layer}.self_attn.${which}_layernorm.norms.${head}.weight`)?.values[i] as number;
      return {
        ...names,
        ...(isParallel ? {} : { ffnNorm: ffnNorm as string }),
        rope: plain(10000, 2),
        scale: 1 / 2,
        ...(hasHeadNorms
          ? { normHead: (x: number[], which: 'q' | 'k', head: number) => layerNormOf(x, 1e-5, normWeight(which, head)) }
          : {}),
      };
    },
  });
});
