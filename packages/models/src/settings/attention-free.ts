/** Settings of decoders that have only state-space layers, in both formats, and their tensors outside the layers. */
import type { WeightRequest } from '../file/weights.js';
import type { ModelFile } from '../program/architecture.js';
import type { DecoderConfig } from '../program/config.js';
import { tensorNames } from '../program/tensors.js';
import { unrotatedFromGguf } from './gguf-settings.js';
import { unrotatedFromHub } from './hub-settings.js';

/** States do not limit the context: this is what llama.cpp's converter writes as the trained context length. */
const contextLength = 2 ** 20;

/** Replaces the sizes that these models do not have while the others are checked. */
const placeholder = 1;

/** GGUF files have 0 heads, and FFNs of size 0. */
export function attentionFreeFromGguf(file: ModelFile, architecture: string): DecoderConfig {
  const sizes = ['attention.head_count', 'attention.head_count_kv', 'feed_forward_length'];
  const missing = Object.fromEntries(sizes.map((name) => [`${architecture}.${name}`, placeholder]));
  const fields = file.fields.with(missing);
  return withoutAttention(unrotatedFromGguf({ ...file, fields }, { architecture, norm: 'rms' }));
}

export function attentionFreeFromHub(file: ModelFile, architecture: string, isTied: boolean): DecoderConfig {
  const missing = {
    num_attention_heads: placeholder,
    num_key_value_heads: placeholder,
    intermediate_size: placeholder,
    // in these models, head_dim is the head size of the states
    head_dim: undefined,
  };
  const config = unrotatedFromHub(
    { ...file, fields: file.fields.with(missing) },
    {
      architecture,
      isTied,
      contextLength,
      epsilon: ['layer_norm_epsilon', 1e-5],
      embedding: 'backbone.embeddings.weight',
    },
  );
  return withoutAttention(config);
}

function withoutAttention(config: DecoderConfig): DecoderConfig {
  const recurrentLayers = Array.from({ length: config.numLayers }, () => true);
  return { ...config, numHeads: 0, numKvHeads: 0, headDim: 0, ffnDim: 0, recurrentLayers };
}

/** Embedding, output norm and output matrix, and the norms of layers. */
export function* attentionFreeTensors(file: ModelFile, config: DecoderConfig): Generator<WeightRequest> {
  const { vocabSize, hiddenDim, numLayers, isTied } = config;
  const names = tensorNames(file);
  yield* names.matrix(['token_embd', 'backbone.embeddings'], [vocabSize, hiddenDim], 'none');
  yield* names.norm(['output_norm', 'backbone.norm_f'], hiddenDim, 'none');
  if (!isTied) yield* names.matrix(['output', 'lm_head'], [vocabSize, hiddenDim], 'none');
  for (let layer = 0; layer < numLayers; layer++) {
    yield* names.norm([`blk.${layer}.attn_norm`, `backbone.layers.${layer}.norm`], hiddenDim, 'none');
  }
}
