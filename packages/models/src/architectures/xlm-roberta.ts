/**
 * XLM-RoBERTa (arXiv:1911.02116): BERT with a SentencePiece vocabulary and a single segment. The position table starts with
 * padding rows: the first token has the row after that of the padding id.
 */
import type { Fields } from '../file/fields.js';
import type { EncoderArchitecture } from '../program/architecture.js';
import { encoderPart } from '../settings/encoder-settings.js';
import { bertFromHub, describeBert, paddedPositions } from './bert.js';

export const xlmRoberta: EncoderArchitecture = {
  name: 'xlm-roberta',
  models:
    'BGE-M3 (also lexical weights and multi-vectors), Multilingual E5, Arctic Embed l 2.0; ' +
    'rerankers: BGE Reranker base, large and v2 M3',
  limits: [
    'GGUF files name the architecture `bert`, and their position table has no padding rows.',
    'Lexical weights and multi-vectors require a folder with `sparse_linear.pt` and `colbert_linear.pt` (or `.safetensors`).',
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
    checkNotJina(checkpoint.fields);
    const file = encoderPart(checkpoint, {
      outer: ['roberta.', 'model.'],
      heads: /^(pooler|lm_head)\.|^embeddings\.position_ids$/,
    });
    const config = bertFromHub(file, 'xlm-roberta');
    const { contextLength, firstPosition } = paddedPositions(file, config);
    return describeBert(file, { ...config, contextLength }, { firstPosition });
  },
};

/** Jina Embeddings v3 has the same `model_type`. @throws {FormatError} that names what is missing */
function checkNotJina(fields: Fields): void {
  const tasks = fields.raw('lora_adaptations');
  if (tasks === undefined) return;
  const expected =
    'none: Jina Embeddings v3 needs rotary positions in these blocks and an adapter per task, also of the embedding table, ' +
    'which are not supported; the nearest supported family is nomic-bert';
  throw fields.refusal('lora_adaptations', expected, tasks);
}
