/** Hybrid models in every file layout: head order, layer lists, and a language model inside a larger checkpoint. */
import { FormatError } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import { describeModel } from '../src/index.js';
import { modelFile, randomWeights, runModel, worstDifference } from './run-model.js';
import type { TruthWeight } from './truth.js';

const [vocab, hidden, ffn, numLayers, headDim] = [11, 12, 10, 4, 6];
const [numKeyHeads, numValueHeads, keyDim, valueDim, numTaps] = [2, 6, 4, 3, 3];
const numChannels = 2 * numKeyHeads * keyDim + numValueHeads * valueDim;
const tokens = [3, 7, 1, 0, 9, 4, 4, 2, 10, 6, 5, 8, 3, 1];
const layers = Array.from({ length: numLayers }, (_, layer) => layer);

type Weights = Map<string, TruthWeight>;
const plain = (rows: readonly Float32Array[]): number[][] => rows.map((row) => [...row]);

const settings = {
  model_type: 'qwen3_5_text',
  hidden_size: hidden,
  intermediate_size: ffn,
  num_hidden_layers: numLayers,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  head_dim: headDim,
  vocab_size: vocab,
  tie_word_embeddings: true,
  linear_num_key_heads: numKeyHeads,
  linear_num_value_heads: numValueHeads,
  linear_key_head_dim: keyDim,
  linear_value_head_dim: valueDim,
  linear_conv_kernel_dim: numTaps,
  full_attention_interval: 2,
  rope_parameters: { rope_theta: 5000, partial_rotary_factor: 0.67 },
};

const shapes: Record<string, number[]> = {
  'model.embed_tokens.weight': [vocab, hidden],
  'model.norm.weight': [hidden],
};
for (const layer of layers) {
  const own = `model.layers.${layer}`;
  shapes[`${own}.input_layernorm.weight`] = [hidden];
  shapes[`${own}.post_attention_layernorm.weight`] = [hidden];
  shapes[`${own}.mlp.gate_proj.weight`] = [ffn, hidden];
  shapes[`${own}.mlp.up_proj.weight`] = [ffn, hidden];
  shapes[`${own}.mlp.down_proj.weight`] = [hidden, ffn];
  if (layer % 2 === 1) {
    shapes[`${own}.self_attn.q_proj.weight`] = [4 * headDim, hidden];
    shapes[`${own}.self_attn.k_proj.weight`] = [headDim, hidden];
    shapes[`${own}.self_attn.v_proj.weight`] = [headDim, hidden];
    shapes[`${own}.self_attn.o_proj.weight`] = [hidden, 2 * headDim];
    shapes[`${own}.self_attn.q_norm.weight`] = [headDim];
    shapes[`${own}.self_attn.k_norm.weight`] = [headDim];
  } else {
    shapes[`${own}.linear_attn.in_proj_qkv.weight`] = [numChannels, hidden];
    shapes[`${own}.linear_attn.in_proj_z.weight`] = [numValueHeads * valueDim, hidden];
    shapes[`${own}.linear_attn.in_proj_a.weight`] = [numValueHeads, hidden];
    shapes[`${own}.linear_attn.in_proj_b.weight`] = [numValueHeads, hidden];
    shapes[`${own}.linear_attn.out_proj.weight`] = [hidden, numValueHeads * valueDim];
    shapes[`${own}.linear_attn.conv1d.weight`] = [numChannels, 1, numTaps];
    shapes[`${own}.linear_attn.norm.weight`] = [valueDim];
    shapes[`${own}.linear_attn.dt_bias`] = [numValueHeads];
    shapes[`${own}.linear_attn.A_log`] = [numValueHeads];
  }
}
const weights = randomWeights(shapes);
const expected = (): Promise<readonly Float32Array[]> => runModel(modelFile('safetensors', settings, weights), tokens);

/** Permutes blocks of `height` rows of `size` values, from row `first` on, into the order of GGUF files. */
function tiled({ shape, values }: TruthWeight, first: number, height: number): TruthWeight {
  const size = values.length / (shape[0] as number);
  const result = values.slice();
  const perKey = numValueHeads / numKeyHeads;
  for (let head = 0; head < numValueHeads; head++) {
    // head `head` of the file goes with key head `head % numKeyHeads`
    const source = (head % numKeyHeads) * perKey + Math.floor(head / numKeyHeads);
    const from = (first + source * height) * size;
    result.set(values.subarray(from, from + height * size), (first + head * height) * size);
  }
  return { shape, values: result };
}

function transposed({ shape: [numRows, numColumns], values }: TruthWeight): TruthWeight {
  const [rows, columns] = [numRows as number, numColumns as number];
  const value = (i: number): number => values[(i % rows) * columns + Math.floor(i / rows)] as number;
  return { shape: [columns, rows], values: Float32Array.from({ length: rows * columns }, (_, i) => value(i)) };
}

const gguf: Record<string, unknown> = {
  'general.architecture': 'qwen35',
  'qwen35.embedding_length': hidden,
  'qwen35.block_count': numLayers,
  'qwen35.feed_forward_length': ffn,
  'qwen35.context_length': 64,
  'qwen35.attention.head_count': 2,
  'qwen35.attention.head_count_kv': 1,
  'qwen35.attention.key_length': headDim,
  'qwen35.attention.value_length': headDim,
  'qwen35.attention.layer_norm_rms_epsilon': 1e-6,
  'qwen35.rope.dimension_count': 4,
  'qwen35.rope.freq_base': 5000,
  'qwen35.ssm.conv_kernel': numTaps,
  'qwen35.ssm.state_size': keyDim,
  'qwen35.ssm.group_count': numKeyHeads,
  'qwen35.ssm.time_step_rank': numValueHeads,
  'qwen35.ssm.inner_size': numValueHeads * valueDim,
  'qwen35.full_attention_interval': 2,
};
const file: Weights = new Map();
const of = (name: string): TruthWeight => weights.get(name) as TruthWeight;
const plusOne = ({ shape, values }: TruthWeight): TruthWeight => ({
  shape,
  values: values.map((value) => value + 1),
});
file.set('token_embd.weight', of('model.embed_tokens.weight'));
file.set('output_norm.weight', plusOne(of('model.norm.weight')));
for (const layer of layers) {
  const [own, hub] = [`blk.${layer}`, `model.layers.${layer}`];
  file.set(`${own}.attn_norm.weight`, plusOne(of(`${hub}.input_layernorm.weight`)));
  file.set(`${own}.post_attention_norm.weight`, plusOne(of(`${hub}.post_attention_layernorm.weight`)));
  for (const kind of ['gate', 'up', 'down']) {
    file.set(`${own}.ffn_${kind}.weight`, of(`${hub}.mlp.${kind}_proj.weight`));
  }
  if (layer % 2 === 1) {
    for (const kind of ['q', 'k'])
      file.set(`${own}.attn_${kind}_norm.weight`, plusOne(of(`${hub}.self_attn.${kind}_norm.weight`)));
    for (const kind of ['q', 'k', 'v'])
      file.set(`${own}.attn_${kind}.weight`, of(`${hub}.self_attn.${kind}_proj.weight`));
    file.set(`${own}.attn_output.weight`, of(`${hub}.self_attn.o_proj.weight`));
    continue;
  }
  const mixer = `${hub}.linear_attn`;
  const firstValue = 2 * numKeyHeads * keyDim;
  const taps = tiled(of(`${mixer}.conv1d.weight`), firstValue, valueDim);
  const decay = tiled(of(`${mixer}.A_log`), 0, 1);
  file.set(`${own}.attn_qkv.weight`, tiled(of(`${mixer}.in_proj_qkv.weight`), firstValue, valueDim));
  file.set(`${own}.attn_gate.weight`, tiled(of(`${mixer}.in_proj_z.weight`), 0, valueDim));
  file.set(`${own}.ssm_alpha.weight`, tiled(of(`${mixer}.in_proj_a.weight`), 0, 1));
  file.set(`${own}.ssm_beta.weight`, tiled(of(`${mixer}.in_proj_b.weight`), 0, 1));
  file.set(`${own}.ssm_out.weight`, transposed(tiled(transposed(of(`${mixer}.out_proj.weight`)), 0, valueDim)));
  file.set(`${own}.ssm_conv1d.weight`, { ...taps, shape: [numChannels, numTaps] });
  file.set(`${own}.ssm_dt.bias`, tiled(of(`${mixer}.dt_bias`), 0, 1));
  file.set(`${own}.ssm_a`, { ...decay, values: decay.values.map((value) => -Math.exp(value)) });
  file.set(`${own}.ssm_norm.weight`, of(`${mixer}.norm.weight`));
}
// sums over heads have another order
const limit = 1e-5;

test('qwen35 as a GGUF file: same results', async () => {
  expect(worstDifference(await runModel(modelFile('gguf', gguf, file), tokens), plain(await expected()))).toBeLessThan(
    limit,
  );
});

test('qwen35 as a GGUF file: with a list of recurrent layers, and layers for multi-token prediction', async () => {
  const listed = { ...gguf, 'qwen35.attention.recurrent_layers': [true, false, true, false, false] };
  const more = {
    ...listed,
    'qwen35.full_attention_interval': 7,
    'qwen35.block_count': 5,
    'qwen35.nextn_predict_layers': 1,
  };
  const longer: Weights = new Map([
    ...file,
    ['blk.4.nextn.eh_proj.weight', { shape: [1], values: new Float32Array(1) }],
  ]);
  expect(
    worstDifference(await runModel(modelFile('gguf', more, longer), tokens), plain(await expected())),
  ).toBeLessThan(limit);
});

test.each([
  ['ssm.group_count', 4, /value heads of recurrent layers: expected a multiple of 4, got 6/],
  ['ssm.inner_size', 17, /ssm\.inner_size: expected a multiple of 6/],
  ['ssm.conv_kernel', 1, /kernel size of the convolution: expected at least 2, got 1/],
  ['ssm.state_size', 5, /attn_qkv\.weight: expected shape \[38, 12\]/],
  ['nextn_predict_layers', 4, /nextn_predict_layers: expected fewer than the 4 layers, got 4/],
  ['attention.recurrent_layers', [true], /recurrent_layers: expected an array of 4, got an array of 1/],
  ['attention.head_count_kv', [0, 1], /head_count_kv: expected an array of 4, got an array of 2/],
  ['attention.head_count_kv', [0, 1, 0, 2], /head_count_kv: expected the same number for every layer/],
  ['full_attention_interval', 0, /full_attention_interval: expected a positive integer/],
])('qwen35 as a GGUF file: rejects %s = %o', async (key, value, message) => {
  const described = describeModel(modelFile('gguf', { ...gguf, [`qwen35.${key}`]: value }, file));
  await expect(described).rejects.toThrow(FormatError);
  await expect(described).rejects.toThrow(message);
});

describe('qwen35 as a folder', () => {
  test('inside a vision checkpoint', async () => {
    const { tie_word_embeddings, model_type, ...text } = settings;
    const inner: Weights = new Map([['model.visual.patch_embed.weight', { shape: [1], values: new Float32Array(1) }]]);
    for (const [name, weight] of weights) inner.set(name.replace('model.', 'model.language_model.'), weight);
    inner.set('mtp.fc.weight', { shape: [1], values: new Float32Array(1) });
    const outer = { model_type: 'qwen3_5', tie_word_embeddings, text_config: { ...text, model_type } };
    const found = await runModel(modelFile('safetensors', outer, inner), tokens);
    expect(worstDifference(found, plain(await expected()))).toBe(0);
  });

  test.each([
    [{ layer_types: ['linear_attention'] }, /layer_types: expected an array of 4, got an array of 1/],
    [{ layer_types: ['conv', 'conv', 'conv', 'conv'] }, /layer_types: expected linear_attention or full_attention/],
    [{ attn_output_gate: false }, /attn_output_gate: expected true/],
    [{ linear_num_key_heads: 5 }, /expected a multiple of 5, got 6/],
    [{ text_config: 3 }, /document: expected a JSON object/],
  ])('rejects %o', async (changes, message) => {
    const described = describeModel(modelFile('safetensors', { ...settings, ...changes }, weights));
    await expect(described).rejects.toThrow(FormatError);
    await expect(described).rejects.toThrow(message);
  });
});

/** Layers without experts, so that the model is that of the tests above. */
const dense = { num_experts: 2, num_experts_per_tok: 1, moe_intermediate_size: 4, shared_expert_intermediate_size: 4 };
const perKey = numValueHeads / numKeyHeads;
const rowsOf = ({ values }: TruthWeight, begin: number, count: number): number[] => [
  ...values.subarray(begin * hidden, (begin + count) * hidden),
];
/** A matrix with `count` rows of each part for one key head after another; a part begins at a row of its tensor. */
const byHead = (parts: readonly (readonly [of: TruthWeight, begin: number, count: number])[]): TruthWeight => {
  const heads = Array.from({ length: numKeyHeads }, (_, head) => head);
  const values = heads.flatMap((head) =>
    parts.flatMap(([weight, begin, count]) => rowsOf(weight, begin + head * count, count)),
  );
  return { shape: [values.length / hidden, hidden], values: Float32Array.from(values) };
};
const fusedOf = (layer: number): { qkvz: TruthWeight; ba: TruthWeight } => {
  const part = (name: string): TruthWeight => of(`model.layers.${layer}.linear_attn.in_proj_${name}.weight`);
  const keyRows = numKeyHeads * keyDim;
  return {
    qkvz: byHead([
      [part('qkv'), 0, keyDim],
      [part('qkv'), keyRows, keyDim],
      [part('qkv'), 2 * keyRows, perKey * valueDim],
      [part('z'), 0, perKey * valueDim],
    ]),
    ba: byHead([
      [part('b'), 0, perKey],
      [part('a'), 0, perKey],
    ]),
  };
};

describe('qwen3next, whose projections are fused head by head', () => {
  test('as a folder', async () => {
    const fused: Weights = new Map([...weights].filter(([name]) => !name.includes('in_proj_')));
    for (const layer of [0, 2]) {
      const { qkvz, ba } = fusedOf(layer);
      fused.set(`model.layers.${layer}.linear_attn.in_proj_qkvz.weight`, qkvz);
      fused.set(`model.layers.${layer}.linear_attn.in_proj_ba.weight`, ba);
    }
    const own = { ...settings, ...dense, model_type: 'qwen3_next', mlp_only_layers: layers };
    const found = await runModel(modelFile('safetensors', own, fused), tokens);
    expect(worstDifference(found, plain(await expected()))).toBe(0);
  });

  test.each(['gates apart', 'gates with q, k and v, as in older files'])('as a GGUF file: %s', async (layout) => {
    const own = new Map(Object.entries(gguf).map(([key, value]) => [key.replace('qwen35', 'qwen3next'), value]));
    own.set('general.architecture', 'qwen3next').set('qwen3next.leading_dense_block_count', numLayers);
    own.set('qwen3next.expert_count', 2).set('qwen3next.expert_used_count', 1);
    const changed: Weights = new Map([...file].filter(([name]) => !/ssm_|attn_qkv|attn_gate/.test(name)));
    for (const layer of [0, 2]) {
      const mixer = `model.layers.${layer}.linear_attn`;
      const set = (name: string, weight: TruthWeight): void => void changed.set(`blk.${layer}.${name}`, weight);
      const { qkvz, ba } = fusedOf(layer);
      set('ssm_ba.weight', ba);
      if (layout !== 'gates apart') set('ssm_in.weight', qkvz);
      else {
        set('attn_qkv.weight', of(`${mixer}.in_proj_qkv.weight`));
        set('attn_gate.weight', of(`${mixer}.in_proj_z.weight`));
      }
      const decay = of(`${mixer}.A_log`);
      set('ssm_a', { ...decay, values: decay.values.map((value) => -Math.exp(value)) });
      set('ssm_conv1d.weight', { ...of(`${mixer}.conv1d.weight`), shape: [numChannels, numTaps] });
      set('ssm_dt.bias', of(`${mixer}.dt_bias`));
      set('ssm_norm.weight', of(`${mixer}.norm.weight`));
      set('ssm_out.weight', of(`${mixer}.out_proj.weight`));
    }
    const found = await runModel(modelFile('gguf', Object.fromEntries(own), changed), tokens);
    expect(worstDifference(found, plain(await expected()))).toBeLessThan(limit);
  });
});

const lfm2 = {
  model_type: 'lfm2',
  hidden_size: hidden,
  intermediate_size: ffn,
  num_hidden_layers: 2,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  vocab_size: vocab,
  conv_L_cache: numTaps,
  block_auto_adjust_ff_dim: false,
  full_attn_idxs: [1],
};

const lfm2Shapes: Record<string, number[]> = {
  'model.embed_tokens.weight': [vocab, hidden],
  'model.embedding_norm.weight': [hidden],
  'model.layers.0.conv.in_proj.weight': [3 * hidden, hidden],
  'model.layers.0.conv.out_proj.weight': [hidden, hidden],
  'model.layers.0.conv.conv.weight': [hidden, 1, numTaps],
  'model.layers.1.self_attn.q_proj.weight': [hidden, hidden],
  'model.layers.1.self_attn.k_proj.weight': [6, hidden],
  'model.layers.1.self_attn.v_proj.weight': [6, hidden],
  'model.layers.1.self_attn.out_proj.weight': [hidden, hidden],
  'model.layers.1.self_attn.q_layernorm.weight': [6],
  'model.layers.1.self_attn.k_layernorm.weight': [6],
};

for (const layer of [0, 1]) {
  lfm2Shapes[`model.layers.${layer}.operator_norm.weight`] = [hidden];
  lfm2Shapes[`model.layers.${layer}.ffn_norm.weight`] = [hidden];
  lfm2Shapes[`model.layers.${layer}.feed_forward.w1.weight`] = [ffn, hidden];
  lfm2Shapes[`model.layers.${layer}.feed_forward.w3.weight`] = [ffn, hidden];
  lfm2Shapes[`model.layers.${layer}.feed_forward.w2.weight`] = [hidden, ffn];
}

const lfm2Weights = randomWeights(lfm2Shapes);

describe('lfm2 as a folder', () => {
  test('lists its layers by type or by index, and the FFN size before adjustment', async () => {
    const indexed = await runModel(modelFile('safetensors', lfm2, lfm2Weights), tokens);
    const types = { layer_types: ['conv', 'full_attention'] };
    const typed = await runModel(
      modelFile('safetensors', { ...lfm2, full_attn_idxs: undefined, ...types }, lfm2Weights),
      tokens,
    );
    expect(worstDifference(typed, plain(indexed))).toBe(0);
    // two thirds of 13, times 1.1, rounded up to a multiple of 5
    const adjusted = {
      intermediate_size: 13,
      block_ffn_dim_multiplier: 1.1,
      block_multiple_of: 5,
      block_auto_adjust_ff_dim: true,
    };
    const again = await runModel(modelFile('safetensors', { ...lfm2, ...adjusted }, lfm2Weights), tokens);
    expect(worstDifference(again, plain(indexed))).toBe(0);
  });

  test.each([
    [{ conv_bias: true }, /conv_bias: expected false/],
    [{ conv_L_cache: 1 }, /conv_L_cache: expected at least 2, got 1/],
    [{ full_attn_idxs: undefined }, /full_attn_idxs: expected an array, without layer_types/],
    [{ layer_types: ['conv', 'sliding_attention'] }, /layer_types: expected conv or full_attention/],
  ])('rejects %o', async (changes, message) => {
    const described = describeModel(modelFile('safetensors', { ...lfm2, ...changes }, lfm2Weights));
    await expect(described).rejects.toThrow(FormatError);
    await expect(described).rejects.toThrow(message);
  });
});
