/** The models by id, each with its slots: those that are given to the server, and those that it loads itself. */
import { totalmem } from 'node:os';
import { ArgumentError } from '@winnow/tensor';
import { missingParameter, modelNotFound } from '../http/api-error.js';
import type { ModelEvent, ModelKind } from '../catalog.js';
import { defaultConcurrency, type ServerLimits, type ServerOptions } from '../options.js';
import type { ModelEntry } from './model-entry.js';
import { unsuited } from './pool/load-errors.js';
import { ModelPool } from './pool/model-pool.js';
import { Slots } from './slots.js';

export interface RegistryListener {
  readonly onEvent: (event: ModelEvent) => void;
  readonly reportError: (error: unknown) => void;
}

export class ModelRegistry {
  /** Models that are loaded when they are first asked for. */
  readonly pool: ModelPool | undefined;
  /** Those that are given to the server. */
  readonly #given: Readonly<Record<ModelKind, Map<string, ModelEntry>>> = {
    generative: new Map(),
    embedding: new Map(),
    reranking: new Map(),
  };

  /** @throws {ArgumentError} when two models of a kind have the same id */
  constructor(options: ServerOptions, limits: Required<ServerLimits>, listener: RegistryListener) {
    const { models = [], embeddingModels = [], rerankers = [], catalog } = options;
    const { maxQueued, queueTimeoutMs } = limits;
    const now = (): number => performance.now();
    const createSlots = (numSlots: number, onRelease: () => void = () => {}): Slots =>
      new Slots({ numSlots, maxQueued, queueTimeoutMs, now, onRelease });
    for (const { id, model, maxSessions = defaultConcurrency } of models) {
      checkCount('maxSessions', maxSessions);
      this.#add('models', { kind: 'generative', id, model, slots: createSlots(maxSessions) });
    }
    // calls of the others are serialized
    for (const { id, model } of embeddingModels) {
      this.#add('embeddingModels', { kind: 'embedding', id, model, slots: createSlots(1) });
    }
    for (const { id, model } of rerankers) {
      this.#add('rerankers', { kind: 'reranking', id, model, slots: createSlots(1) });
    }
    if (catalog === undefined) return;
    const { memoryBytes = totalmem(), maxLoadedModels = Infinity, unloadAfterMs = Infinity } = options;
    const pooled = { catalog, memoryBytes, maxLoaded: maxLoadedModels, unloadAfterMs, waitMs: queueTimeoutMs };
    this.pool = new ModelPool({ ...pooled, ...listener, now, createSlots });
  }

  /** Those of the loaded models. */
  entries(): ModelEntry[] {
    return [...this.given(), ...(this.pool?.entries() ?? [])];
  }

  /** Those of the models that are given to the server. */
  given(): ModelEntry[] {
    return Object.values(this.#given).flatMap((entries) => [...entries.values()]);
  }

  /** The id that a request without a model means. @throws {ApiError} 400 if there is not exactly one model of the kind */
  async onlyId(kind: ModelKind): Promise<string> {
    const given = [...this.#given[kind].keys()];
    const available = given.length > 0 ? [] : ((await this.pool?.list()) ?? []).map((each) => each.available.id);
    const [id, ...others] = [...given, ...available];
    if (id !== undefined && others.length === 0) return id;
    throw missingParameter('model', id === undefined ? undefined : `one of ${[id, ...others].join(', ')}`);
  }

  /** A model that is given to the server. @throws {ApiError} 400 for one of another kind, 404 if there is no catalog */
  givenEntry(kind: ModelKind, id: string): ModelEntry | undefined {
    const found = this.#given[kind].get(id);
    if (found !== undefined) return found;
    if (Object.values(this.#given).some((entries) => entries.has(id))) throw unsuited(id, kind);
    if (this.pool === undefined) throw modelNotFound(id);
    return undefined;
  }

  #add(argument: string, entry: ModelEntry): void {
    const entries = this.#given[entry.kind];
    checkNew(entries, argument, entry.id);
    entries.set(entry.id, entry);
  }

  /** Rejects waiting and new requests. */
  close(): void {
    for (const { slots } of this.given()) slots.close();
    this.pool?.close();
  }

  /** Unloads the models that it has loaded. */
  async dispose(): Promise<void> {
    await this.pool?.dispose();
  }
}

function checkNew(known: ReadonlyMap<string, unknown>, argument: string, id: string): void {
  if (id === '') throw new ArgumentError({ argument, expected: 'an id', actual: 'an empty string' });
  if (known.has(id)) throw new ArgumentError({ argument, expected: 'unique ids', actual: `'${id}' twice` });
}

export function checkCount(argument: string, count: number, least = 1): void {
  if (Number.isSafeInteger(count) && count >= least) return;
  throw new ArgumentError({ argument, expected: `an integer from ${least}`, actual: String(count) });
}
