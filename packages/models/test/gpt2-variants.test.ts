/** Settings of GPT-2 that no golden model has, against a float64 pass. */
import { test } from 'vitest';
import { expectTruth, heads, hidden, layerShapes, normShapes, numLayers, usual, vocab } from './small-models.js';
import { randomWeights } from './run-model.js';
import { geluTanh, type TruthModel, type TruthWeight } from './truth.js';

const numPositions = 32;
const linears = {
  'attn.c_attn': [hidden, 3 * hidden],
  'attn.c_proj': [hidden, hidden],
  'mlp.c_fc': [hidden, 4 * hidden],
  'mlp.c_proj': [4 * hidden, hidden],
} as const;

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

/** @param outer prefix of names */
function gpt2Weights(outer: string): Map<string, TruthWeight> {
  const linearShapes = Object.entries(linears).flatMap(([name, shape]) => [
    [`${name}.weight`, shape] as const,
    [`${name}.bias`, [shape[1]]] as const,
  ]);
  const ofLayer = {
    ...normShapes(['ln_1', 'ln_2'], true),
    ...Object.fromEntries(linearShapes),
    'attn.bias': [1, 1, numPositions, numPositions],
  };
  return randomWeights({
    [`${outer}wte.weight`]: [vocab, hidden],
    [`${outer}wpe.weight`]: [numPositions, hidden],
    ...normShapes([`${outer}ln_f`], true),
    ...layerShapes(ofLayer, `${outer}h`),
  });
}

/** Converts GPT-2 weights, stored as `[inputs, outputs]` with fused q, k and v, to the layout of the other models. */
function untangled(weights: ReadonlyMap<string, TruthWeight>, outer: string): Map<string, TruthWeight> {
  const all = new Map(weights);
  for (let layer = 0; layer < numLayers; layer++) {
    for (const name of Object.keys(linears)) {
      const at = `${outer}h.${layer}.${name}`;
      const { shape, values } = weights.get(`${at}.weight`) as TruthWeight;
      const [numInputs, numOutputs] = shape as [number, number];
      const transposed = Float32Array.from(
        values,
        (_, i) => values[(i % numInputs) * numOutputs + Math.floor(i / numInputs)] as number,
      );
      all.set(`${at}.weight`, { shape: [numOutputs, numInputs], values: transposed });
      if (name !== 'attn.c_attn') continue;
      const bias = (weights.get(`${at}.bias`) as TruthWeight).values;
      ['q', 'k', 'v'].forEach((which, part) => {
        const own = transposed.subarray(part * hidden * hidden, (part + 1) * hidden * hidden);
        const ownBias = bias.subarray(part * hidden, (part + 1) * hidden);
        all.set(`${at}.${which}.weight`, { shape: [hidden, hidden], values: own });
        all.set(`${at}.${which}.bias`, { shape: [hidden], values: ownBias });
      });
    }
  }
  return all;
}

function gpt2Truth(outer: string): TruthModel {
  return {
    ...usual,
    ...heads(3, 3, 4),
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
  };
}

test.each(['', 'transformer.'])('gpt2: scale by layer, default FFN size, name prefix "%s"', async (outer) => {
  const weights = gpt2Weights(outer);
  const truthWeights = untangled(weights, outer);
  await expectTruth(settings, weights, gpt2Truth(outer), { truthWeights, contextSize: numPositions });
});
