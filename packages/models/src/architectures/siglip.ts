/**
 * SigLIP (arXiv:2303.15343): a bidirectional text encoder whose last position, which may be padding, is projected, and a
 * vision encoder whose tokens are pooled by attention: `r = attn(probe, LN(x))`, `image = r + mlp(LN(r))`.
 */
import type { ProgramTensor } from '@winnow/ops';
import { add, layerNorm, linear } from '../blocks/decoder-blocks.js';
import { describeEncoder } from '../blocks/encoder-blocks.js';
import { collectWeights, type WeightRequest } from '../file/weights.js';
import type { EncoderArchitecture, ModelFile } from '../program/architecture.js';
import type { DecoderStep } from '../program/decoder-program.js';
import { tensorNames } from '../program/tensors.js';
import { positionTable, towerOf, visionShape, withShapes, type Tower } from '../vision/checkpoint.js';
import { embedWithPositions, sharedDim, textTensors } from '../vision/text-tower.js';
import { describeVision, towerLayer, visionTensors } from '../vision/tower.js';

const sizes = {
  ...{ hidden_size: 768, intermediate_size: 3072, num_hidden_layers: 12, num_attention_heads: 12 },
  ...{ hidden_act: 'gelu_pytorch_tanh', layer_norm_eps: 1e-6 },
};
const textDefaults = { ...sizes, max_position_embeddings: 64, vocab_size: 32000, pad_token_id: 1 };
/** Settings of SigLIP's vision encoder that a file leaves out. */
export const siglipVisionDefaults: Readonly<Record<string, unknown>> = { ...sizes, image_size: 224, patch_size: 16 };

export const siglip: EncoderArchitecture = {
  name: 'siglip',
  models: 'SigLIP base, large and so400m, SigLIP 2 with fixed resolution (text and images)',
  limits: [
    'Texts are padded to the context length with the pad token, which the model attends to, as in training.',
    'The embeddings of texts and images must have the hidden size of both encoders, as in all published models.',
    'Only from Hugging Face folders; the GGUF format of llama.cpp has no text encoder.',
    'SigLIP 2 with variable resolution (`siglip2`) is not read.',
  ],
  isEncoder: true,
  ggufNames: [],
  hubNames: ['siglip'],
  hubClass: 'SiglipModel',
  async describe(checkpoint) {
    const file = { ...checkpoint, store: withShapes(checkpoint.store, visionShape) };
    const text = towerOf(file, 'text_config', {
      ...{ architecture: 'siglip', values: textDefaults },
      embedding: 'text_model.embeddings.token_embedding.weight',
    });
    const image = siglipVisionTower(file, 'vision_model.', siglipVisionDefaults);
    const { hiddenDim } = text.config;
    sharedDim(file.fields, text.config, text.fields.count('projection_size', hiddenDim));
    const dim = sharedDim(file.fields, text.config, image.config.hiddenDim);
    const isUnused = (name: string): boolean => /^logit_(scale|bias)$|\.position_ids$/.test(name);
    const weights = collectWeights(file.store, requests(file, text, image), isUnused);
    const length = text.config.contextLength;
    return {
      ...describeEncoder({
        config: { ...text.config, maxPositions: length },
        weights,
        embed: embedWithPositions,
        layer: towerLayer(text),
        norm: (step, x) => linear(step, 'head', layerNorm(step, 'output_norm', x)),
      }),
      pooling: 'last',
      padding: { length, id: text.fields.integer('pad_token_id') },
      vision: describeVision({ tower: image, weights, hasClass: false, numRows: 1, dim, finish: poolByAttention }),
    };
  },
};

/** The settings of SigLIP's vision encoder. @param prefix prefix of its tensors */
export function siglipVisionTower(file: ModelFile, prefix: string, values: Readonly<Record<string, unknown>>): Tower {
  const embedding = positionTable(file, prefix);
  return towerOf(file, 'vision_config', { architecture: 'siglip', values, embedding });
}

/** SigLIP's pooling by multi-head attention with a single, learned query. */
function poolByAttention(step: DecoderStep, hidden: ProgramTensor): ProgramTensor {
  const { b, config, weight } = step;
  const { numHeads, headDim } = config;
  const x = layerNorm(step, 'post_ln', hidden);
  const firstRow = b.scalar('probeRows', ['B']);
  const probe = b.activation('embedding-lookup', { table: weight('head.probe'), tokens: firstRow });
  const heads = (which: string, from: ProgramTensor, rows: 'B' | 'T'): ProgramTensor =>
    b.reshape(linear(step, `head.attn_${which}`, from), [rows, numHeads, headDim]);
  const pooled = step.attend(config.numLayers, {
    q: heads('q', probe, 'B'),
    k: heads('k', x, 'T'),
    v: heads('v', x, 'T'),
    scale: 1 / Math.sqrt(headDim),
    rows: { positions: firstRow, sequences: firstRow },
  });
  const r = linear(step, 'head.attn_output', b.reshape(pooled, ['B', numHeads * headDim]));
  const up = linear(step, 'head.ffn_up', layerNorm(step, 'head.norm', r));
  const y = linear(step, 'head.ffn_down', b.activation('activation', { x: up }, { kind: config.activation }));
  return b.reshape(add(step, r, y), ['B', config.hiddenDim]);
}

function* requests(file: ModelFile, text: Tower, image: Tower): Generator<WeightRequest> {
  const names = tensorNames(file);
  const { hiddenDim, ffnDim } = image.config;
  yield* textTensors(file, text);
  yield* names.matrix(['head', 'text_model.head'], [hiddenDim, text.config.hiddenDim], 'required');
  yield* visionTensors(file, image, 'vision_model.', { hasClass: false, hasPostNorm: true });
  const head = 'vision_model.head';
  yield { name: 'v.head.probe', storedName: `${head}.probe`, shape: [1, hiddenDim], isFloat: true };
  for (const [index, which] of ['q', 'k', 'v'].entries()) {
    const rows = { begin: index * hiddenDim, total: 3 * hiddenDim };
    const own = `v.head.attn_${which}`;
    yield {
      name: `${own}.weight`,
      storedName: `${head}.attention.in_proj_weight`,
      shape: [hiddenDim, hiddenDim],
      rows,
    };
    yield { name: `${own}.bias`, storedName: `${head}.attention.in_proj_bias`, shape: [hiddenDim], rows };
  }
  yield* names.matrix(['v.head.attn_output', `${head}.attention.out_proj`], [hiddenDim, hiddenDim], 'required');
  yield* names.norm(['v.head.norm', `${head}.layernorm`], hiddenDim, 'required');
  yield* names.matrix(['v.head.ffn_up', `${head}.mlp.fc1`], [ffnDim, hiddenDim], 'required');
  yield* names.matrix(['v.head.ffn_down', `${head}.mlp.fc2`], [hiddenDim, ffnDim], 'required');
}
