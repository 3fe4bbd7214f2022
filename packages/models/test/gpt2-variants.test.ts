/** Settings of GPT-2 that no golden model has, against a float64 pass. */
import { test } from 'vitest';
import { expectTruth, heads, hidden, layerShapes, normShapes, numLayers, usual, vocab } from './small-models.js';
import { randomWeights } from './run-model.js';
import { geluTanh, type TruthWeight } from './truth.js';

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
        const transposed = Float32Array.from(
          values,
          (_, i) => values[(i % numInputs) * numOutputs + Math.floor(i / numInputs)] as number,
        );
        truthWeights.set(`${at}.weight`, { shape: [numOutputs, numInputs], values: transposed });
        if (name !== 'attn.c_attn') continue;
        const bias = (weights.get(`${at}.bias`) as TruthWeight).values;
        ['q', 'k', 'v'].forEach((which, part) => {
          const own = transposed.subarray(part * hidden * hidden, (part + 1) * hidden * hidden);
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
