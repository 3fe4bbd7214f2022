/** What `winnow serve` can load on demand: models of a folder, of the hub, and of a file with settings. */
import { resolve } from 'node:path';
import type { EmbeddingLoadOptions, LoadOptions, RerankerLoadOptions } from '@winnow/engine';
import type { AvailableModel, LoadedModel, ModelCatalog, ModelKind, PreparedModel } from '@winnow/server';
import { ArgumentError, definedFields } from '@winnow/tensor';
import { UsageError } from '../../errors/errors.js';
import { optionOf } from '../../errors/names.js';
import { draftModelOf, executionOptionsOf, loadOptionsOf } from '../../flags/engine-options.js';
import { refuse } from '../../flags/parse-values.js';
import { parseModelReference } from '../model-location.js';
import { openEmbeddingModel, openReranker } from '../open-embedding-model.js';
import { locateModel, openModel, type OpenContext } from '../open-model.js';
import { withPolicyPath } from '../policy-files.js';
import { hubNameOf } from './hub-names.js';
import { scanModels, type LocalModel } from './model-folder.js';
import type { ModelFlags, SettingsFile } from './settings.js';

export interface CatalogSources {
  /** `--models-dir` */
  readonly folder: string | undefined;
  /** `--hub` */
  readonly hub: boolean;
  /** `--models-file` */
  readonly settings: SettingsFile;
  /** `--cache-dir` */
  readonly promptCache: Pick<LoadOptions, 'promptCache'>;
}

type Facts = Pick<AvailableModel, 'sizeBytes' | 'modifiedMs'> & { readonly aliases?: readonly string[] };

/** @throws {UsageError} for settings that no model can have */
export function createCatalog(sources: CatalogSources, flags: ModelFlags, context: OpenContext): ModelCatalog {
  const catalog = new Catalog(sources, flags, context);
  catalog.check();
  return catalog;
}

class Catalog implements ModelCatalog {
  readonly #sources: CatalogSources;
  readonly #flags: ModelFlags;
  readonly #context: OpenContext;
  readonly #idOfAlias: ReadonlyMap<string, string>;
  #scan: Promise<ReadonlyMap<string, LocalModel>> | undefined;
  #local: ReadonlyMap<string, LocalModel> = new Map();

  constructor(sources: CatalogSources, flags: ModelFlags, context: OpenContext) {
    this.#sources = sources;
    this.#flags = flags;
    this.#context = context;
    const named = [...sources.settings.models].flatMap(([id, { aliases }]) =>
      aliases.map((alias) => [alias, id] as const),
    );
    this.#idOfAlias = new Map(named);
  }

  /** Checks all settings before the server starts. */
  check(): void {
    const { settings, folder, hub } = this.#sources;
    checkDrafts({ ...this.#flags, ...settings.defaults });
    for (const [id, { model }] of settings.models) {
      if (model === undefined && folder === undefined && !(hub && hubNameOf(id) !== undefined)) {
        throw new UsageError(`--models-file: models.${id}.model: expected a model, since there is no --models-dir`);
      }
      try {
        if (model !== undefined) parseModelReference(model);
        checkDrafts(this.#flagsOf(id));
        loadOptionsOf(this.#flagsOf(id));
      } catch (error) {
        if (!(error instanceof UsageError)) throw error;
        throw new UsageError(`--models-file: models.${id}.${error.message.replace(/^--[a-z-]+/, optionOf)}`);
      }
    }
  }

  async list(): Promise<readonly AvailableModel[]> {
    const { settings, folder, hub } = this.#sources;
    const models = new Map<string, AvailableModel>();
    for (const [id, { model }] of settings.models) {
      if (model !== undefined) models.set(id, this.#available(id, model));
    }
    const local = folder === undefined ? [] : (await this.#scanned()).values();
    for (const each of local) if (!models.has(each.id)) models.set(each.id, this.#localModel(each));
    const cached = hub ? await (await this.#context.io.hubCache()).listCachedRepos() : [];
    for (const { repo, sizeBytes, incompleteBytes, revisions } of cached) {
      if (models.has(repo) || hubNameOf(repo) === undefined || revisions.length === 0) continue;
      if (sizeBytes > incompleteBytes) models.set(repo, this.#available(repo, `hf:${repo}`, { sizeBytes }));
    }
    return [...models.values()];
  }

  async find(name: string): Promise<AvailableModel | undefined> {
    const { settings, hub } = this.#sources;
    const id = this.#idOfAlias.get(name) ?? name;
    const model = settings.models.get(id)?.model;
    if (model !== undefined) return this.#available(id, model);
    const local = await this.#findLocal(id);
    if (local !== undefined) return this.#localModel(local);
    const hubName = hub ? hubNameOf(id) : undefined;
    return hubName === undefined ? undefined : this.#available(hubName, `hf:${hubName}`);
  }

  /** Scans the folder again only for names that were not in it. */
  async #findLocal(name: string): Promise<LocalModel | undefined> {
    if (this.#sources.folder === undefined) return undefined;
    return byName(this.#local, name) ?? byName(await this.#scanned(), name);
  }

  /** Requests that arrive during a scan share it. */
  #scanned(): Promise<ReadonlyMap<string, LocalModel>> {
    this.#scan ??= scanModels(this.#sources.folder as string)
      .then((models) => (this.#local = models))
      .finally(() => (this.#scan = undefined));
    return this.#scan;
  }

  #localModel({ id, path, aliases, sizeBytes, modifiedMs }: LocalModel): AvailableModel {
    return this.#available(id, resolve(path), { aliases, sizeBytes, modifiedMs });
  }

  #flagsOf(id: string): ModelFlags {
    const { defaults, models } = this.#sources.settings;
    return { kvWhenFull: 'wait', ...this.#flags, ...defaults, ...models.get(id)?.flags };
  }

  /** @param model as on the command line; paths are absolute, unless the owner of the server has written them */
  #available(id: string, model: string, { aliases = [], ...facts }: Facts = {}): AvailableModel {
    const settings = this.#sources.settings.models.get(id);
    const flags = this.#flagsOf(id);
    const unloadAfterMs = settings?.unloadAfter === undefined ? undefined : settings.unloadAfter * 1000;
    return {
      ...{ id, aliases: [...aliases, ...(settings?.aliases ?? [])] },
      ...definedFields<AvailableModel>({ ...facts, unloadAfterMs, maxSessions: flags.maxSessions }),
      prepare: (kind, { signal }) => prepare(kind, model, flags, this.#sources, { ...this.#context, signal }),
    } as AvailableModel;
  }
}

/** @throws {UsageError} for a draft model, which fits the models of one vocabulary only */
function checkDrafts(flags: ModelFlags): void {
  const drafting = draftModelOf(flags);
  if (drafting === undefined) return;
  throw refuse('--speculative', 'off, lookup, self=POLICY or auto with models on demand', `draft=${drafting}`);
}

function byName(models: ReadonlyMap<string, LocalModel>, name: string): LocalModel | undefined {
  return models.get(name) ?? [...models.values()].find(({ aliases }) => aliases.includes(name));
}

async function prepare(
  kind: ModelKind,
  model: string,
  flags: ModelFlags,
  { promptCache }: CatalogSources,
  context: OpenContext,
): Promise<PreparedModel | undefined> {
  const takesImages = kind !== 'embedding' && kind !== 'reranking';
  const path = await locate(model, context, takesImages && flags.mmproj === undefined);
  if (path === undefined) return undefined;
  const engine = await context.io.engine();
  const { signal } = context;
  if (kind === 'embedding') {
    const { memory, pooling } = flags;
    const planned = { ...executionOptionsOf(flags), ...definedFields<EmbeddingLoadOptions>({ memory }) };
    const options = { ...planned, ...definedFields<EmbeddingLoadOptions>({ pooling }) };
    const { plan } = await engine.inspectModel(path, { ...planned, mmproj: false, signal });
    return {
      memoryBytes: plan.totalBytes,
      load: async (load) => ({ kind, model: await openEmbeddingModel(path, options, { ...context, ...load }) }),
    };
  }
  if (kind === 'reranking') {
    const options = { ...executionOptionsOf(flags), ...definedFields<RerankerLoadOptions>({ memory: flags.memory }) };
    const { plan } = await engine.inspectModel(path, { ...options, mmproj: false, signal });
    return {
      memoryBytes: plan.totalBytes,
      load: async (load) => ({ kind, model: await openReranker(path, options, { ...context, ...load }) }),
    };
  }
  const options = { ...withPolicyPath(model, loadOptionsOf(flags)), ...promptCache };
  const { plan } = await engine.inspectModel(path, { ...options, signal });
  return {
    memoryBytes: plan.totalBytes,
    load: async (load): Promise<LoadedModel> => ({
      kind,
      model: await openModel(path, options, { ...context, ...load }),
    }),
  };
}

/** Downloads a model of the hub; object stores are read when it is loaded. Undefined when there is no such repository or file. */
async function locate(model: string, context: OpenContext, mmproj: boolean): Promise<string | undefined> {
  try {
    const location = await locateModel(model, context, { mmproj });
    return typeof location === 'string' || location instanceof URL ? String(location) : model;
  } catch (error) {
    const { reason } = error as { reason?: unknown };
    const isMissing = reason === 'not-found' || reason === 'not-cached';
    if (!isMissing && !(ArgumentError.isInstance(error) && error.argument === 'gguf')) throw error;
    context.warn((error as Error).message);
    return undefined;
  }
}
