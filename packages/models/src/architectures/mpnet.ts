/**
 * MPNet (arXiv:2004.09297): BERT without segments, with a relative position bias of the attention logits whose bucket table all
 * layers share. The position table starts with padding rows, as in XLM-RoBERTa.
 */
import { gatheredRowsView } from '../file/gathered-views.js';
import type { Weight } from '../file/weights.js';
import type { EmbedderDescription, EncoderArchitecture, ModelFile } from '../program/architecture.js';
import { encoderPart, type EncoderConfig } from '../settings/encoder-settings.js';
import { bertFromHub, describeBert, paddedPositions, type BertAttentionNames } from './bert.js';

export const mpnet: EncoderArchitecture = {
  name: 'mpnet',
  models: 'all-mpnet-base-v2, multi-qa-mpnet-base, paraphrase-mpnet-base-v2',
  limits: ['Only from Hugging Face folders, since llama.cpp has no architecture for it.'],
  isEncoder: true,
  ggufNames: [],
  hubNames: ['mpnet'],
  hubClass: 'MPNetModel',
  async describe(checkpoint) {
    const file = encoderPart(checkpoint, {
      outer: ['mpnet.', 'model.'],
      heads: /^(pooler|lm_head)\.|^embeddings\.position_ids$/,
    });
    const config = bertFromHub(file, 'mpnet');
    const { contextLength, firstPosition } = paddedPositions(file, config);
    return describeMpnet(file, { ...config, contextLength }, firstPosition);
  },
};

const names: BertAttentionNames = {
  qkv: ['attention.attn.q', 'attention.attn.k', 'attention.attn.v'],
  output: 'attention.attn.o',
  norm: 'attention.LayerNorm',
};

const biasName = 'position_bias.weight';

/** Distance beyond which all keys have the bias of the last bucket. */
const maxDistance = 128;

function describeMpnet(file: ModelFile, config: EncoderConfig, firstPosition: number): EmbedderDescription {
  const numBuckets = file.fields.count('relative_attention_num_buckets', 32);
  if (numBuckets % 4 !== 0) throw file.fields.refusal('relative_attention_num_buckets', 'a multiple of 4', numBuckets);
  const storedName = 'encoder.relative_attention_bias.weight';
  const description = describeBert(file, config, {
    ...{ firstPosition, names },
    tensors: [{ name: biasName, storedName, shape: [numBuckets, config.numHeads], isFloat: true }],
    attention: ({ weight }) => ({ positionBias: weight(biasName) }),
  });
  const table = description.weights.get(biasName) as Weight;
  description.weights.set(biasName, byDistance(table, numBuckets));
  return description;
}

/** The biases of keys that are `-maxDistance` to `maxDistance` positions after the query. */
function byDistance(table: Weight, numBuckets: number): Weight {
  const shape = [2 * maxDistance + 1, table.shape[1] as number];
  const bucketOf = (row: number): number => relativeBucket(row - maxDistance, numBuckets);
  const stored = gatheredRowsView(table.stored, shape, bucketOf);
  return { ...table, shape, stored, sizeBytes: 4 * (shape[0] as number) * (shape[1] as number) };
}

/**
 * The bucket of a key that is `ahead` positions after the query, as in T5 (arXiv:1910.10683 section 2.1). Half of the buckets are
 * for keys after the query; within each half, the first half holds one distance each, the rest grow logarithmically.
 */
function relativeBucket(ahead: number, numBuckets: number): number {
  const half = numBuckets / 2;
  const numExact = half / 2;
  const begin = ahead > 0 ? half : 0;
  const distance = Math.abs(ahead);
  if (distance < numExact) return begin + distance;
  // in float32, as in transformers, since a distance may be a power of the factor
  const powers = Math.fround(
    Math.fround(Math.log(distance / numExact)) / Math.fround(Math.log(maxDistance / numExact)),
  );
  return begin + Math.min(half - 1, numExact + Math.trunc(Math.fround(powers * (half - numExact))));
}
