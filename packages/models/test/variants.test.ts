/** Settings of config.json that no golden model has, against a float64 pass. */
import { expect, test } from 'vitest';
import { modelFile, randomWeights, runModel, worstDifference } from './run-model.js';
import { geluTanh, layerNormOf, rmsOf, silu, speeds, truthLogits, type TruthModel, type TruthWeight } from './truth.js';

const [vocab, hidden, ffn, numLayers] = [11, 12, 10, 3];
const tokens = [3, 7, 1, 0, 9, 4, 4, 2, 10, 6, 5, 8, 3, 1];
const sizes = { hidden_size: hidden, intermediate_size: ffn, num_hidden_layers: numLayers, vocab_size: vocab };

interface Heads {
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
}
const heads = (numHeads: number, numKvHeads: number, headDim: number): Heads => ({ numHeads, numKvHeads, headDim });
const settingsOf = ({ numHeads, numKvHeads }: Heads): object => ({
  ...sizes,
  num_attention_heads: numHeads,
  num_key_value_heads: numKvHeads,
});

type Shapes = Record<string, readonly number[]>;

function outerShapes(isTied: boolean, norm = 'model.norm', hasBias = false): Shapes {
  return {
    'model.embed_tokens.weight': [vocab, hidden],
    [`${norm}.weight`]: [hidden],
    ...(hasBias ? { [`${norm}.bias`]: [hidden] } : {}),
    ...(isTied ? {} : { 'lm_head.weight': [vocab, hidden] }),
  };
}

/** Shapes of every layer from those of one, whose names lack the layer. */
function layerShapes(shapes: Shapes, prefix = 'model.layers'): Shapes {
  return Object.fromEntries(
    Array.from({ length: numLayers }, (_, layer) =>
      Object.entries(shapes).map(([name, shape]) => [`${prefix}.${layer}.${name}`, shape] as const),
    ).flat(),
  );
}

function linearShapes(names: Readonly<Record<string, readonly [number, number]>>, hasBias: boolean): Shapes {
  return Object.fromEntries(
    Object.entries(names).flatMap(([name, shape]) => [
      [`${name}.weight`, shape] as const,
      ...(hasBias ? [[`${name}.bias`, [shape[0]]] as const] : []),
    ]),
  );
}

function attentionShapes(
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
const gatedShapes: Record<string, [number, number]> = {
  'mlp.gate_proj': [ffn, hidden],
  'mlp.up_proj': [ffn, hidden],
  'mlp.down_proj': [hidden, ffn],
};
const normShapes = (names: readonly string[], hasBias = false): Shapes =>
  Object.fromEntries(
    names.flatMap((name) => [
      [`${name}.weight`, [hidden]] as const,
      ...(hasBias ? [[`${name}.bias`, [hidden]] as const] : []),
    ]),
  );

type TruthLayer = ReturnType<TruthModel['layer']>;

/** Names of a usual layer. */
function usualLayer(layer: number): Omit<TruthLayer, 'scale'> {
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
const usual = {
  numLayers,
  eps: 1e-5,
  norm: 'rms',
  activation: silu,
  embedding: 'model.embed_tokens',
  outputNorm: 'model.norm',
  output: 'lm_head',
} as const;
const plain = (base: number, rotaryDim: number): NonNullable<TruthLayer['rope']> => ({
  speeds: speeds(base, rotaryDim),
  amplitude: 1,
});

/** Within what f32 can do: the values are of order 1 after three layers of sums of a dozen terms. */
const limit = 1e-5;

async function expectTruth(
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

test('qwen3: attention biases, heads larger than their share', async () => {
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

test.each([false, true])('phi: grouped heads, another rotated share, head norms, tied %s', async (isTied) => {
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

/** Parts of fused matrices as matrices of their own. */
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
  ['short', 20],
  ['long', 21],
] as const)('phi3: %s factors in a context of %i, a part of each head, a window, tied', async (which, contextSize) => {
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
    original_max_position_embeddings: 20,
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
    amplitude: Math.sqrt(1 + Math.log(4) / Math.log(20)),
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
    { contextSize, truthWeights },
  );
});

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

/** A checkpoint with pictures around a language model. */
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

test.each(['', 'transformer.'])(
  'gpt2: scales by layer, the usual FFN size, names that begin with "%s"',
  async (outer) => {
    const shape = heads(3, 3, 4);
    const numPositions = 32;
    const linears = {
      'attn.c_attn': [hidden, 3 * hidden],
      'attn.c_proj': [hidden, hidden],
      'mlp.c_fc': [hidden, 4 * hidden],
      'mlp.c_proj': [4 * hidden, hidden],
    } as const;
    const weights = randomWeights({
      [`${outer}wte.weight`]: [vocab, hidden],
      [`${outer}wpe.weight`]: [numPositions, hidden],
      ...normShapes([`${outer}ln_f`], true),
      ...layerShapes(
        {
          ...normShapes(['ln_1', 'ln_2'], true),
          ...Object.fromEntries(
            Object.entries(linears).flatMap(([name, rows]) => [
              [`${name}.weight`, rows] as const,
              [`${name}.bias`, [rows[1]]] as const,
            ]),
          ),
          'attn.bias': [1, 1, numPositions, numPositions],
        },
        `${outer}h`,
      ),
    });
    const truthWeights = new Map(weights);
    for (let layer = 0; layer < numLayers; layer++) {
      for (const name of Object.keys(linears)) {
        const at = `${outer}h.${layer}.${name}`;
        const { shape: stored, values } = weights.get(`${at}.weight`) as TruthWeight;
        const [numInputs, numOutputs] = stored as [number, number];
        const turned = Float32Array.from(
          values,
          (_, i) => values[(i % numInputs) * numOutputs + Math.floor(i / numInputs)] as number,
        );
        truthWeights.set(`${at}.weight`, { shape: [numOutputs, numInputs], values: turned });
        if (name !== 'attn.c_attn') continue;
        const bias = (weights.get(`${at}.bias`) as TruthWeight).values;
        ['q', 'k', 'v'].forEach((which, part) => {
          const own = turned.subarray(part * hidden * hidden, (part + 1) * hidden * hidden);
          truthWeights.set(`${at}.${which}.weight`, { shape: [hidden, hidden], values: own });
          truthWeights.set(`${at}.${which}.bias`, {
            shape: [hidden],
            values: bias.subarray(part * hidden, (part + 1) * hidden),
          });
        });
      }
    }
    const settings = {
      model_type: 'gpt2',
      n_embd: hidden,
      n_head: 3,
      n_layer: numLayers,
      n_positions: numPositions,
      n_inner: null,
      vocab_size: vocab,
      scale_attn_by_inverse_layer_idx: true,
    };
    await expectTruth(
      settings,
      weights,
      {
        ...usual,
        ...shape,
        norm: 'layer',
        activation: geluTanh,
        embedding: `${outer}wte`,
        positions: `${outer}wpe`,
        outputNorm: `${outer}ln_f`,
        output: `${outer}wte`,
        layer: (layer) => {
          const at = `${outer}h.${layer}`;
          return {
            attentionNorm: `${at}.ln_1`,
            ffnNorm: `${at}.ln_2`,
            q: `${at}.attn.c_attn.q`,
            k: `${at}.attn.c_attn.k`,
            v: `${at}.attn.c_attn.v`,
            o: `${at}.attn.c_proj`,
            up: `${at}.mlp.c_fc`,
            down: `${at}.mlp.c_proj`,
            scale: 1 / 2 / (layer + 1),
          };
        },
      },
      { truthWeights, contextSize: numPositions },
    );
  },
);

test('starcoder2: no biases, a window, an output matrix of its own', async () => {
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
])('stablelm: parallel %s, norms of single heads %s, no biases, grouped heads', async (isParallel, hasHeadNorms) => {
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
