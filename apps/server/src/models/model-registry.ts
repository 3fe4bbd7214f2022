/** The models by id, each with its slots. */
import { ArgumentError } from '@winnow/tensor';
import { ApiError, missingParameter, modelNotFound } from '../http/api-error.js';
import {
  defaultConcurrency,
  type GenerativeModel,
  type ServerLimits,
  type ServerOptions,
  type VectorModel,
} from '../options.js';
import { Slots } from './slots.js';

export interface GenerativeEntry {
  readonly kind: 'generative';
  readonly id: string;
  readonly model: GenerativeModel;
  readonly slots: Slots;
}

export interface EmbeddingEntry {
  readonly kind: 'embedding';
  readonly id: string;
  readonly model: VectorModel;
  readonly slots: Slots;
}

export type ModelEntry = GenerativeEntry | EmbeddingEntry;

export class ModelRegistry {
  readonly #generative = new Map<string, GenerativeEntry>();
  readonly #embedding = new Map<string, EmbeddingEntry>();

  /** @throws {ArgumentError} when two models of a kind have the same id */
  constructor({ models = [], embeddingModels = [] }: ServerOptions, limits: Required<ServerLimits>) {
    const { maxQueued, queueTimeoutMs } = limits;
    const slotsOf = (numSlots: number): Slots =>
      new Slots({ numSlots, maxQueued, queueTimeoutMs, now: () => performance.now() });
    for (const { id, model, maxSessions = defaultConcurrency } of models) {
      checkNew(this.#generative, 'models', id);
      if (!Number.isSafeInteger(maxSessions) || maxSessions < 1) {
        const actual = String(maxSessions);
        throw new ArgumentError({ argument: 'maxSessions', expected: 'an integer from 1', actual });
      }
      this.#generative.set(id, { kind: 'generative', id, model, slots: slotsOf(maxSessions) });
    }
    for (const { id, model } of embeddingModels) {
      checkNew(this.#embedding, 'embeddingModels', id);
      // calls of such a model are serialized
      this.#embedding.set(id, { kind: 'embedding', id, model, slots: slotsOf(1) });
    }
  }

  entries(): ModelEntry[] {
    return [...this.#generative.values(), ...this.#embedding.values()];
  }

  /**
   * @param id may be omitted if there is only one generative model
   * @throws {ApiError} 404 for an unknown model, 400 for an embedding model
   */
  generative(id = onlyId(this.#generative)): GenerativeEntry {
    const entry = this.#generative.get(id);
    if (entry !== undefined) return entry;
    throw this.#embedding.has(id) ? cannot(id, 'generate text') : modelNotFound(id);
  }

  /**
   * @param id may be omitted if there is only one embedding model
   * @throws {ApiError} 404 for an unknown model, 400 for a model without embedding support
   */
  embedding(id = onlyId(this.#embedding)): EmbeddingEntry {
    const entry = this.#embedding.get(id);
    if (entry !== undefined) return entry;
    throw this.#generative.has(id) ? cannot(id, 'embed texts') : modelNotFound(id);
  }

  /** Rejects waiting and new requests. */
  close(): void {
    for (const { slots } of this.entries()) slots.close();
  }
}

/** @throws {ApiError} 400 if there is not exactly one model */
function onlyId(entries: ReadonlyMap<string, unknown>): string {
  const [id, ...others] = entries.keys();
  if (id !== undefined && others.length === 0) return id;
  throw missingParameter('model', entries.size === 0 ? undefined : `one of ${[...entries.keys()].join(', ')}`);
}

function checkNew(known: ReadonlyMap<string, unknown>, argument: string, id: string): void {
  if (id === '') throw new ArgumentError({ argument, expected: 'an id', actual: 'an empty string' });
  if (known.has(id)) throw new ArgumentError({ argument, expected: 'unique ids', actual: `'${id}' twice` });
}

function cannot(id: string, what: string): ApiError {
  const message = `The model '${id}' does not ${what} on this server`;
  return new ApiError({ status: 400, message, param: 'model', code: 'unsupported_model' });
}
