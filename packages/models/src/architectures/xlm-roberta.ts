/**
 * XLM-RoBERTa (arXiv:1911.02116): BERT with a SentencePiece vocabulary and a single segment. The position table starts
 * with the rows of padding, so the first token has the row after that of the padding id.
 */
import type { EncoderArchitecture } from '../program/architecture.js';
import { encoderPart } from '../settings/encoder-settings.js';
import { bertFromHub, describeBert } from './bert.js';

export const xlmRoberta: EncoderArchitecture = {
  name: 'xlm-roberta',
  models: 'BGE-M3 (dense vectors), Multilingual E5, Arctic Embed l 2.0; rerankers: BGE Reranker base, large and v2 M3',
  limits: [
    'In GGUF files its architecture is `bert`, and the position table has no rows of padding.',
    'Sparse weights and multi-vectors of BGE-M3 are not computed.',
  ],
  isEncoder: true,
  ggufNames: [],
  hubNames: ['xlm-roberta'],
  hubClass: 'XLMRobertaModel',
  head: {
    hubClass: 'XLMRobertaForSequenceClassification',
    hubPrefix: 'roberta.',
    dense: 'classifier.dense',
    output: 'classifier.out_proj',
    pooling: () => 'cls',
    activation: () => 'tanh',
  },
  async describe(checkpoint) {
    const file = encoderPart(checkpoint, {
      outer: ['roberta.', 'model.'],
      heads: /^(pooler|lm_head)\.|^embeddings\.position_ids$/,
    });
    const config = bertFromHub(file, 'xlm-roberta');
    const firstPosition = file.fields.integer('pad_token_id', 1) + 1;
    const contextLength = config.contextLength - firstPosition;
    if (firstPosition < 1 || contextLength < 1) {
      const expected = `more than the ${firstPosition} rows of padding`;
      throw file.fields.refusal('max_position_embeddings', expected, config.contextLength);
    }
    return describeBert(file, { ...config, contextLength }, firstPosition);
  },
};
