/** What Ollama's API says about models. */
import { createHash } from 'node:crypto';
import type { ModelEntry } from '../../models/model-registry.js';
import type { OllamaListedModel, OllamaShowResponse } from './schemas.js';

type Details = OllamaListedModel['details'];

/** Unknown facts are empty. */
function detailsOf(entry: ModelEntry): Details {
  const family = entry.kind === 'generative' ? entry.model.config.architecture : '';
  return {
    ...{ parent_model: '', format: '', family, families: family === '' ? [] : [family] },
    ...{ parameter_size: '', quantization_level: '' },
  };
}

/** A model that generates and embeds is listed once. */
export function listedModels(entries: readonly ModelEntry[], modifiedAt: string): OllamaListedModel[] {
  const models = new Map<string, OllamaListedModel>();
  for (const entry of entries) {
    const { id } = entry;
    if (models.has(id)) continue;
    models.set(id, {
      ...{ name: id, model: id, modified_at: modifiedAt },
      size: entry.kind === 'generative' ? (entry.model.plan?.totalBytes ?? 0) : 0,
      digest: createHash('sha256').update(id).digest('hex'),
      details: detailsOf(entry),
    });
  }
  return [...models.values()];
}

/** @param entries of one model */
export function shownModel(entries: readonly [ModelEntry, ...ModelEntry[]], modifiedAt: string): OllamaShowResponse {
  const [first] = entries;
  const capabilities = entries.flatMap((entry): OllamaShowResponse['capabilities'] => {
    if (entry.kind === 'embedding') return ['embedding'];
    return entry.model.chatTemplate === undefined ? ['completion'] : ['completion', 'tools'];
  });
  const template = first.kind === 'generative' ? (first.model.chatTemplate?.source ?? '') : '';
  return {
    ...{ license: '', modelfile: '', parameters: '', template, modified_at: modifiedAt },
    details: detailsOf(first),
    model_info: modelInfo(first),
    capabilities,
  };
}

/** Keys are those of GGUF files. */
function modelInfo(entry: ModelEntry): Record<string, unknown> {
  if (entry.kind === 'embedding') return { 'general.name': entry.model.name };
  const { name, config, contextSize } = entry.model;
  const { architecture, hiddenDim, numLayers, numHeads, numKvHeads, vocabSize } = config;
  return {
    'general.name': name,
    'general.architecture': architecture,
    [`${architecture}.context_length`]: contextSize,
    [`${architecture}.embedding_length`]: hiddenDim,
    [`${architecture}.block_count`]: numLayers,
    [`${architecture}.attention.head_count`]: numHeads,
    [`${architecture}.attention.head_count_kv`]: numKvHeads,
    [`${architecture}.vocab_size`]: vocabSize,
  };
}
