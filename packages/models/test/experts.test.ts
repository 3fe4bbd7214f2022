/** Experts in every file layout: stacked, fused, separate; a single expert equals a plain FFN. */
import { FormatError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { describeModel } from '../src/index.js';
import { modelFile, randomWeights, runModel, worstDifference } from './run-model.js';
import type { TruthWeight } from './truth.js';

const [vocab, hidden, ffn, numLayers, numExperts] = [11, 12, 10, 2, 4];
const tokens = [3, 7, 1, 0, 9, 4, 4, 2, 10, 6, 5, 8, 3, 1];
const layers = Array.from({ length: numLayers }, (_, layer) => layer);

type Weights = Map<string, TruthWeight>;

const settings = {
  model_type: 'qwen3_moe',
  hidden_size: hidden,
  intermediate_size: ffn,
  moe_intermediate_size: ffn,
  num_hidden_layers: numLayers,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  head_dim: 6,
  vocab_size: vocab,
  num_experts: numExperts,
  num_experts_per_tok: 2,
  norm_topk_prob: true,
};

/** Everything but the FFNs. */
const trunk: Record<string, number[]> = {
  'model.embed_tokens.weight': [vocab, hidden],
  'lm_head.weight': [vocab, hidden],
  'model.norm.weight': [hidden],
};
for (const layer of layers) {
  const own = `model.layers.${layer}`;
  trunk[`${own}.input_layernorm.weight`] = [hidden];
  trunk[`${own}.post_attention_layernorm.weight`] = [hidden];
  trunk[`${own}.self_attn.q_proj.weight`] = [12, hidden];
  trunk[`${own}.self_attn.k_proj.weight`] = [6, hidden];
  trunk[`${own}.self_attn.v_proj.weight`] = [6, hidden];
  trunk[`${own}.self_attn.o_proj.weight`] = [hidden, 12];
  trunk[`${own}.self_attn.q_norm.weight`] = [6];
  trunk[`${own}.self_attn.k_norm.weight`] = [6];
}
const matrices = { gate_proj: [ffn, hidden], up_proj: [ffn, hidden], down_proj: [hidden, ffn] } as const;
type Kind = keyof typeof matrices;

const split: Record<string, readonly number[]> = { ...trunk };
for (const layer of layers) {
  split[`model.layers.${layer}.mlp.gate.weight`] = [numExperts, hidden];
  for (let expert = 0; expert < numExperts; expert++) {
    for (const [kind, shape] of Object.entries(matrices)) {
      split[`model.layers.${layer}.mlp.experts.${expert}.${kind}.weight`] = shape;
    }
  }
}

function concat(parts: readonly TruthWeight[], shape: readonly number[]): TruthWeight {
  return { shape, values: Float32Array.from(parts.flatMap(({ values }) => [...values])) };
}

const weightOf = (weights: Weights, name: string): TruthWeight => weights.get(name) as TruthWeight;
const expertOf = (weights: Weights, layer: number, expert: number, kind: Kind): TruthWeight =>
  weightOf(weights, `model.layers.${layer}.mlp.experts.${expert}.${kind}.weight`);
const experts = Array.from({ length: numExperts }, (_, expert) => expert);

const plain = (rows: readonly Float32Array[]): number[][] => rows.map((row) => [...row]);

const weights = randomWeights(split);
const expected = (): Promise<readonly Float32Array[]> => runModel(modelFile('safetensors', settings, weights), tokens);

test('fused in a folder', async () => {
  const fused: Weights = new Map([...weights].filter(([name]) => !name.includes('.experts.')));
  for (const layer of layers) {
    const both = experts.flatMap((expert) => [
      expertOf(weights, layer, expert, 'gate_proj'),
      expertOf(weights, layer, expert, 'up_proj'),
    ]);
    const down = experts.map((expert) => expertOf(weights, layer, expert, 'down_proj'));
    const own = `model.layers.${layer}.mlp.experts`;
    fused.set(`${own}.gate_up_proj`, concat(both, [numExperts, 2 * ffn, hidden]));
    fused.set(`${own}.down_proj`, concat(down, [numExperts, hidden, ffn]));
  }
  const found = await runModel(modelFile('safetensors', settings, fused), tokens);
  expect(worstDifference(found, plain(await expected()))).toBe(0);
});

const ggufSettings = {
  'general.architecture': 'qwen3moe',
  'qwen3moe.embedding_length': hidden,
  'qwen3moe.block_count': numLayers,
  'qwen3moe.feed_forward_length': 99, // experts have another size
  'qwen3moe.context_length': 64,
  'qwen3moe.attention.head_count': 2,
  'qwen3moe.attention.head_count_kv': 1,
  'qwen3moe.attention.key_length': 6,
  'qwen3moe.attention.value_length': 6,
  'qwen3moe.attention.layer_norm_rms_epsilon': 1e-6,
  'qwen3moe.expert_count': numExperts,
  'qwen3moe.expert_used_count': 2,
  'qwen3moe.expert_feed_forward_length': ffn,
};
const outer: Record<string, string> = {
  'model.embed_tokens': 'token_embd',
  lm_head: 'output',
  'model.norm': 'output_norm',
};
const inner: Record<string, string> = {
  input_layernorm: 'attn_norm',
  post_attention_layernorm: 'ffn_norm',
  'self_attn.q_proj': 'attn_q',
  'self_attn.k_proj': 'attn_k',
  'self_attn.v_proj': 'attn_v',
  'self_attn.o_proj': 'attn_output',
  'self_attn.q_norm': 'attn_q_norm',
  'self_attn.k_norm': 'attn_k_norm',
  'mlp.gate': 'ffn_gate_inp',
};
const renamed: Weights = new Map();
for (const [hub, own] of Object.entries(outer)) renamed.set(`${own}.weight`, weightOf(weights, `${hub}.weight`));
for (const layer of layers) {
  for (const [hub, own] of Object.entries(inner)) {
    renamed.set(`blk.${layer}.${own}.weight`, weightOf(weights, `model.layers.${layer}.${hub}.weight`));
  }
}

test.each(['stacked', 'one by one', 'gate and up fused'])('in a GGUF file, %s', async (how) => {
  const file: Weights = new Map(renamed);
  const kinds = { gate: 'gate_proj', up: 'up_proj', down: 'down_proj' } as const;
  for (const layer of layers) {
    for (const [own, kind] of Object.entries(kinds) as ['gate' | 'up' | 'down', Kind][]) {
      const all = experts.map((expert) => expertOf(weights, layer, expert, kind));
      if (how === 'one by one') {
        for (const [expert, weight] of all.entries()) file.set(`blk.${layer}.ffn_${own}.${expert}.weight`, weight);
      } else if (how === 'stacked' || own === 'down') {
        file.set(`blk.${layer}.ffn_${own}_exps.weight`, concat(all, [numExperts, ...matrices[kind]]));
      }
    }
    if (how !== 'gate and up fused') continue;
    const both = experts.flatMap((expert) => [
      expertOf(weights, layer, expert, 'gate_proj'),
      expertOf(weights, layer, expert, 'up_proj'),
    ]);
    file.set(`blk.${layer}.ffn_gate_up_exps.weight`, concat(both, [numExperts, 2 * ffn, hidden]));
  }
  const found = await runModel(modelFile('gguf', ggufSettings, file), tokens);
  expect(worstDifference(found, plain(await expected()))).toBe(0);
});

test('unnormalized or scaled routing weights give other results', async () => {
  const other = { ...settings, norm_topk_prob: false };
  const found = await runModel(modelFile('safetensors', other, weights), tokens);
  expect(worstDifference(found, plain(await expected()))).toBeGreaterThan(1e-3);
});

test('files of transformers 5 use another key for the number of experts', async () => {
  const weights = randomWeights(split);
  const expected = await runModel(modelFile('safetensors', settings, weights), tokens);
  const { num_experts: count, ...others } = settings;
  const renamed = modelFile('safetensors', { ...others, num_local_experts: count }, weights);
  expect(worstDifference(await runModel(renamed, tokens), plain(expected))).toBe(0);
});

test('one expert, and layers without experts, equal the plain FFN', async () => {
  const dense: Record<string, readonly number[]> = { ...trunk };
  for (const layer of layers) {
    for (const [kind, shape] of Object.entries(matrices)) dense[`model.layers.${layer}.mlp.${kind}.weight`] = shape;
  }
  const weights = randomWeights(dense);
  const expected = await runModel(
    modelFile('safetensors', { ...settings, model_type: 'qwen3', num_experts: 0 }, weights),
    tokens,
  );
  const single = { ...settings, num_experts: 1, num_experts_per_tok: 1 };
  const one: Weights = new Map();
  for (const [name, weight] of weights)
    one.set(name.replace(/mlp\.(gate|up|down)_proj/, 'mlp.experts.0.$1_proj'), weight);
  for (const layer of layers) {
    one.set(`model.layers.${layer}.mlp.gate.weight`, { shape: [1, hidden], values: new Float32Array(hidden).fill(2) });
  }
  expect(worstDifference(await runModel(modelFile('safetensors', single, one), tokens), plain(expected))).toBeLessThan(
    1e-6,
  );
  // layer 0 by the list, layer 1 by the step
  const sparse = { ...single, mlp_only_layers: [0], decoder_sparse_step: 4 };
  expect(worstDifference(await runModel(modelFile('safetensors', sparse, weights), tokens), plain(expected))).toBe(0);
});

test.each([
  [{ num_experts_per_tok: 5 }, /selected experts: expected at most 4, got 5/],
  [{ num_experts_per_tok: 0 }, /num_experts_per_tok: expected a positive integer/],
  [{ num_experts: 2 ** 40, num_experts_per_tok: 1 }, /number of experts: expected at most 65536/],
  [{ num_experts: 3 }, /mlp\.gate\.weight: expected shape \[3, 12\], got \[4, 12\]/],
  [{ moe_intermediate_size: 11 }, /experts\.0\.gate_proj\.weight: expected shape \[11, 12\]/],
  [{ mlp_only_layers: 3 }, /mlp_only_layers: expected an array, got 3/],
  [{ decoder_sparse_step: 0 }, /decoder_sparse_step: expected a positive integer/],
  [{ norm_topk_prob: 1 }, /norm_topk_prob: expected true or false/],
])('rejects %o', async (changes, message) => {
  const described = describeModel(modelFile('safetensors', { ...settings, ...changes }, randomWeights(split)));
  await expect(described).rejects.toThrow(FormatError);
  await expect(described).rejects.toThrow(message);
});
