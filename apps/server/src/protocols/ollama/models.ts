/** What Ollama's API says about models. */
import { createHash } from 'node:crypto';
import type { ModelEntry } from '../../models/model-entry.js';
import type { ModelRegistry } from '../../models/model-registry.js';
import type { AvailableStatus } from '../../models/pool/model-pool.js';
import type { OllamaListedModel, OllamaShowResponse } from './schemas.js';

type Details = OllamaListedModel['details'];

/** Fields that are unknown, such as those of models that are not loaded, are empty. */
function detailsOf(entry: ModelEntry | undefined): Details {
  const family = entry?.kind === 'generative' ? entry.model.config.architecture : '';
  return {
    ...{ parent_model: '', format: '', family, families: family === '' ? [] : [family] },
    ...{ parameter_size: '', quantization_level: '' },
  };
}

function listedModel(id: string, modifiedAt: string, size: number, entry?: ModelEntry): OllamaListedModel {
  const digest = createHash('sha256').update(id).digest('hex');
  return { name: id, model: id, modified_at: modifiedAt, size, digest, details: detailsOf(entry) };
}

const plannedBytes = (entry: ModelEntry): number =>
  entry.kind === 'generative' ? (entry.model.plan?.totalBytes ?? 0) : 0;

/** A model that generates and embeds is listed once. */
export function listedModels(
  entries: readonly ModelEntry[],
  available: readonly AvailableStatus[],
  startedAt: string,
): OllamaListedModel[] {
  const loaded = new Map(entries.toReversed().map((entry) => [entry.id, entry]));
  const models = new Map(
    available.map(({ available: { id, sizeBytes = 0, modifiedMs } }) => {
      const modifiedAt = modifiedMs === undefined ? startedAt : new Date(modifiedMs).toISOString();
      return [id, listedModel(id, modifiedAt, sizeBytes, loaded.get(id))];
    }),
  );
  const given = entries.filter(({ id }) => !models.has(id));
  for (const entry of given)
    models.set(entry.id, listedModel(entry.id, startedAt, plannedBytes(entry), loaded.get(entry.id)));
  return [...models.values()];
}

/** The models in memory, each once. */
export function runningModels(registry: ModelRegistry, startedAt: string): OllamaListedModel[] {
  const models = new Map<string, OllamaListedModel>();
  for (const entry of registry.given()) {
    models.set(entry.id, { ...listedModel(entry.id, startedAt, plannedBytes(entry), entry), size_vram: 0 });
  }
  for (const { entry, memoryBytes, expiresMs } of registry.pool?.loaded() ?? []) {
    const expires = expiresMs === undefined ? {} : { expires_at: new Date(expiresMs).toISOString() };
    models.set(entry.id, { ...listedModel(entry.id, startedAt, memoryBytes, entry), size_vram: 0, ...expires });
  }
  return [...models.values()];
}

/** @param entries those of one model; none: it is not loaded */
export function shownModel(entries: readonly ModelEntry[], modifiedAt: string): OllamaShowResponse {
  const [first] = entries;
  const capabilities = entries.flatMap((entry): OllamaShowResponse['capabilities'] => {
    if (entry.kind === 'embedding') return ['embedding'];
    if (entry.kind === 'reranking') return [];
    const { chatTemplate, imageToken } = entry.model;
    const tools = chatTemplate === undefined ? [] : (['tools'] as const);
    return ['completion', ...tools, ...(imageToken === undefined ? [] : (['vision'] as const))];
  });
  const template = first?.kind === 'generative' ? (first.model.chatTemplate?.source ?? '') : '';
  return {
    ...{ license: '', modelfile: '', parameters: '', template, modified_at: modifiedAt },
    details: detailsOf(first),
    model_info: first === undefined ? {} : modelInfo(first),
    capabilities,
  };
}

/** Keys are those of GGUF files. */
function modelInfo(entry: ModelEntry): Record<string, unknown> {
  if (entry.kind !== 'generative') return { 'general.name': entry.model.name };
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
