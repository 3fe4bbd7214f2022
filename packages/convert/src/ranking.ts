/** Conversion of rerankers: their head, and the settings that describe it. */
import {
  architectures,
  describeEmbedder,
  describeReranker,
  hasRankingHead,
  rankPooling,
  type EmbedderDescription,
  type ModelFile,
  type RerankerDescription,
} from '@winnow/models';
import { FormatError } from '@winnow/tensor';
import type { Json } from './hub-settings.js';
import type { GgufPairs } from './rope-values.js';

/** Describes files like the source: as a reranker if it has a classification head, otherwise like other models. */
export function describerOf(source: ModelFile): (file: ModelFile) => Promise<EmbedderDescription> {
  if (!hasRankingHead(source)) return describeEmbedder;
  return (file) => describeReranker(file, () => undefined);
}

function isReranker(description: EmbedderDescription): description is RerankerDescription {
  return 'numLabels' in description;
}

/** Settings of the head for GGUF files; empty for models without one. */
export function rankingPairs(architecture: string, description: EmbedderDescription): GgufPairs {
  if (!isReranker(description)) return [];
  const isUsual = architecture !== 'modern-bert' || description.pooling === 'mean';
  return [
    [`${architecture}.pooling_type`, { type: 'uint32', value: rankPooling }],
    ...(isUsual ? [] : ([[`${architecture}.classifier_pooling`, description.pooling]] as GgufPairs)),
  ];
}

/**
 * Settings of the head for config.json; empty for models without one.
 * @throws {FormatError} for a judge, because GGUF files contain only two rows of its output matrix
 */
export function rankingSettings({ fields }: ModelFile, description: EmbedderDescription, settings: Json): Json {
  if (!isReranker(description)) return {};
  const found = architectures.find(({ name }) => name === description.config.architecture);
  if (found?.isEncoder !== true || found.head === undefined) {
    const message = 'a reranker file has only the rows of its two answers, but a folder needs the whole output matrix';
    throw new FormatError({ source: fields.source, field: 'cls.output.weight', message });
  }
  const { hubClass, biasSetting } = found.head;
  return {
    architectures: [hubClass],
    id2label: { 0: 'LABEL_0' },
    label2id: { LABEL_0: 0 },
    ...(biasSetting === undefined
      ? {}
      : {
          [biasSetting]: description.weights.has('cls.bias'),
          classifier_pooling: description.pooling,
          classifier_activation: settings['hidden_activation'],
        }),
  };
}
