/** Settings of Gemma that no golden model has, against a float64 pass. */
import { test } from 'vitest';
import {
  attentionShapes,
  expectTruth,
  gatedShapes,
  heads,
  hidden,
  layerShapes,
  linearShapes,
  normShapes,
  outerShapes,
  plain,
  settingsOf,
  usual,
  usualLayer,
  type Heads,
  type TruthLayer,
} from './small-models.js';
import { randomWeights } from './run-model.js';
import { geluTanh, rmsOf, speeds, type TruthWeight } from './truth.js';

const sandwichNorms = [
  'input_layernorm',
  'post_attention_layernorm',
  'pre_feedforward_layernorm',
  'post_feedforward_layernorm',
];
function sandwichLayer(layer: number): Omit<TruthLayer, 'scale'> {
  const at = `model.layers.${layer}`;
  return {
    ...usualLayer(layer),
    afterAttention: `${at}.post_attention_layernorm`,
    ffnNorm: `${at}.pre_feedforward_layernorm`,
    afterFfn: `${at}.post_feedforward_layernorm`,
  };
}
const gemmaUsual = {
  ...usual,
  output: 'model.embed_tokens',
  plusOne: true,
  activation: geluTanh,
  embeddingScale: Math.sqrt(hidden),
} as const;
const gemmaSettings = (shape: Heads): object => ({ ...settingsOf(shape), head_dim: shape.headDim, rms_norm_eps: 1e-5 });

test('gemma: "gelu" means the tanh form', async () => {
  const shape = heads(2, 1, 4);
  const weights = randomWeights({
    ...outerShapes(true),
    ...layerShapes({
      ...normShapes(['input_layernorm', 'post_attention_layernorm']),
      ...linearShapes({ ...attentionShapes(shape), ...gatedShapes }, false),
    }),
  });
  const settings = { ...gemmaSettings(shape), model_type: 'gemma', hidden_act: 'gelu' };
  await expectTruth(settings, weights, {
    ...gemmaUsual,
    ...shape,
    layer: (layer) => ({ ...usualLayer(layer), rope: plain(10000, 4), scale: 1 / 2 }),
  });
});

test.each([
  ['no caps', { attn_logit_softcapping: null, final_logit_softcapping: null }, {}, {}],
  ['caps', { attn_logit_softcapping: 1.5, final_logit_softcapping: 2 }, { cap: 1.5 }, { finalCap: 2 }],
] as const)('gemma2: %s, an attention scale of its own, layer types by default', async (_name, caps, cap, finalCap) => {
  const shape = heads(4, 2, 4);
  const weights = randomWeights({
    ...outerShapes(true),
    ...layerShapes({
      ...normShapes(sandwichNorms),
      ...linearShapes({ ...attentionShapes(shape), ...gatedShapes }, false),
    }),
  });
  const settings = {
    ...gemmaSettings(shape),
    ...caps,
    model_type: 'gemma2',
    query_pre_attn_scalar: 9,
    sliding_window: 4,
  };
  await expectTruth(settings, weights, {
    ...gemmaUsual,
    ...shape,
    ...finalCap,
    layer: (layer) => ({
      ...sandwichLayer(layer),
      ...cap,
      rope: plain(10000, 4),
      scale: 1 / 3,
      ...(layer % 2 === 0 ? { window: 4 } : {}),
    }),
  });
});

const localRope = { rope_theta: 2000, rope_local_base_freq: 50, rope_scaling: { rope_type: 'linear', factor: 4 } };

/** A vision checkpoint around a language model. */
const wrapped = {
  none: undefined,
  new: { from: 'model.', to: 'model.language_model.', other: 'model.vision_tower.x.weight' },
  old: { from: '', to: 'language_model.', other: 'vision_tower.x.weight' },
} as const;

test.each([
  ['rope_parameters by layer type', { rope_parameters: byType() }, 'none'],
  ['rope_scaling', localRope, 'none'],
  ['with pictures', localRope, 'new'],
  ['with pictures, older names', localRope, 'old'],
] as const)('gemma3: %s, a pattern of two, a final cap', async (_name, rope, wrapping) => {
  const shape = heads(4, 2, 4);
  const weights = randomWeights({
    ...outerShapes(true),
    ...layerShapes({
      ...normShapes(sandwichNorms),
      ...linearShapes({ ...attentionShapes(shape), ...gatedShapes }, false),
      'self_attn.q_norm.weight': [4],
      'self_attn.k_norm.weight': [4],
    }),
  });
  const settings = {
    ...gemmaSettings(shape),
    ...rope,
    model_type: 'gemma3_text',
    query_pre_attn_scalar: 9,
    sliding_window: 4,
    sliding_window_pattern: 2,
    final_logit_softcapping: 2,
  };
  const normWeight = (layer: number, which: string) => (i: number) =>
    1 + (weights.get(`model.layers.${layer}.self_attn.${which}_norm.weight`)?.values[i] as number);
  const outer = wrapped[wrapping];
  const names = [...weights].map(([name, weight]) => [(outer?.to ?? '') + name.slice(outer?.from.length ?? 0), weight]);
  const other = { shape: [2, 2], values: new Float32Array(4) };
  const stored = outer === undefined ? weights : new Map([...names, [outer.other, other]] as [string, TruthWeight][]);
  const whole = outer === undefined ? settings : { model_type: 'gemma3', text_config: settings };
  await expectTruth(
    whole,
    stored,
    {
      ...gemmaUsual,
      ...shape,
      finalCap: 2,
      layer: (layer) => ({
        ...sandwichLayer(layer),
        scale: 1 / 3,
        normHead: (x, which) => rmsOf(x, 1e-5, normWeight(layer, which)),
        ...(layer % 2 === 0
          ? { window: 4, rope: plain(50, 4) }
          : { rope: { speeds: speeds(2000, 4).map((speed) => speed / 4), amplitude: 1 } }),
      }),
    },
    { truthWeights: weights },
  );
});

function byType(): object {
  return {
    full_attention: { rope_type: 'linear', factor: 4, rope_theta: 2000 },
    sliding_attention: { rope_type: 'default', rope_theta: 50 },
  };
}
