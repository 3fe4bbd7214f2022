/**
 * CLIP (arXiv:2103.00020): a causal text encoder whose last token, and a vision encoder whose class token are projected to
 * the same space. `text = P_t LN(x)[last]`, `image = P_v LN(x)[class]`.
 */
import { describeEncoder } from '../blocks/encoder-blocks.js';
import { layerNorm, linear } from '../blocks/decoder-blocks.js';
import { collectWeights, type WeightRequest } from '../file/weights.js';
import type { EncoderArchitecture, ModelFile } from '../program/architecture.js';
import type { DecoderConfig } from '../program/config.js';
import { tensorNames } from '../program/tensors.js';
import { embedWithPositions, sharedDim, textTensors } from '../vision/text-tower.js';
import { positionTable, towerOf, visionShape, withShapes, type Tower } from '../vision/checkpoint.js';
import { describeVision, towerLayer, visionTensors } from '../vision/tower.js';

const textDefaults = {
  hidden_size: 512,
  intermediate_size: 2048,
  num_hidden_layers: 12,
  num_attention_heads: 8,
  max_position_embeddings: 77,
  vocab_size: 49408,
  hidden_act: 'quick_gelu',
  layer_norm_eps: 1e-5,
};
const visionDefaults = {
  hidden_size: 768,
  intermediate_size: 3072,
  num_hidden_layers: 12,
  num_attention_heads: 12,
  image_size: 224,
  patch_size: 32,
  hidden_act: 'quick_gelu',
  layer_norm_eps: 1e-5,
};

/** Tensors of older checkpoints that follow from the settings. */
const isDerived = (name: string): boolean => name.endsWith('.position_ids');

export const clip: EncoderArchitecture = {
  name: 'clip',
  models: 'OpenAI CLIP ViT-B/32, B/16, L/14; LAION and DataComp CLIP in the layout of transformers (text and images)',
  limits: [
    'The embeddings of texts and images must have the hidden size of the text encoder, as in all published models.',
    'Only from Hugging Face folders; the GGUF format of llama.cpp has no text encoder.',
    'Texts must end with the end token, which the tokenizer appends.',
  ],
  isEncoder: true,
  ggufNames: [],
  hubNames: ['clip'],
  hubClass: 'CLIPModel',
  async describe(checkpoint) {
    const file = { ...checkpoint, store: withShapes(checkpoint.store, visionShape) };
    const text = towerOf(file, 'text_config', {
      ...{ architecture: 'clip', values: textDefaults },
      embedding: 'text_model.embeddings.token_embedding.weight',
    });
    const image = clipVisionTower(file, 'vision_model.');
    const dim = sharedDim(file.fields, text.config, file.fields.count('projection_dim', 512));
    const isUnused = (name: string): boolean => isDerived(name) || name === 'logit_scale';
    const weights = collectWeights(file.store, requests(file, text, image, dim), isUnused);
    const { isEncoder: _, ...causal } = text.config;
    const config: DecoderConfig = { ...causal, maxPositions: text.config.contextLength };
    return {
      ...describeEncoder({
        config,
        weights,
        embed: embedWithPositions,
        layer: towerLayer(text),
        norm: (step, x) => linear(step, 'text_projection', layerNorm(step, 'output_norm', x)),
      }),
      pooling: 'last',
      vision: describeVision({
        ...{ tower: image, weights, hasClass: true, numRows: 1, dim, slots: { rows: Int32Array.of(0) } },
        finish(step, hidden, slot) {
          const first = step.b.activation('gather-rows', { x: hidden, rows: slot('rows') });
          return linear(step, 'projection', layerNorm(step, 'post_ln', first));
        },
      }),
    };
  },
};

/** The settings of CLIP's vision encoder. @param prefix prefix of its tensors */
export function clipVisionTower(file: ModelFile, prefix: string): Tower {
  return towerOf(file, 'vision_config', {
    ...{ architecture: 'clip', values: visionDefaults },
    embedding: positionTable(file, prefix),
  });
}

function* requests(file: ModelFile, text: Tower, image: Tower, dim: number): Generator<WeightRequest> {
  const names = tensorNames(file);
  yield* textTensors(file, text);
  yield* names.matrix(['text_projection', 'text_projection'], [dim, text.config.hiddenDim], 'none');
  yield* visionTensors(file, image, 'vision_model.', { hasClass: true, hasPostNorm: true });
  yield* names.matrix(['v.projection', 'visual_projection'], [dim, image.config.hiddenDim], 'none');
}
