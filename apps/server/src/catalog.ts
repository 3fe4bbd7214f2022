/** Models that a server loads when they are first asked for: what it needs to know about them. */
import type { GenerativeModel, RankingModel, VectorModel } from './options.js';

/** The kind of work that a model is loaded for. One file may be loaded for several kinds. */
export type ModelKind = 'generative' | 'embedding' | 'reranking';

/** A loaded model that the server disposes of. */
export type LoadedModel =
  | { readonly kind: 'generative'; readonly model: GenerativeModel & AsyncDisposable }
  | { readonly kind: 'embedding'; readonly model: VectorModel & AsyncDisposable }
  | { readonly kind: 'reranking'; readonly model: RankingModel & AsyncDisposable };

/** A model that is on this computer and planned. */
export interface PreparedModel {
  /** Total of its memory plan in bytes. */
  readonly memoryBytes: number;
  /** @throws the signal's reason when aborted */
  load(options: { readonly signal: AbortSignal }): Promise<LoadedModel>;
}

/** A model that can be loaded. */
export interface AvailableModel {
  readonly id: string;
  /** Other names of the model. */
  readonly aliases?: readonly string[];
  /** Size of its files in bytes, if known. */
  readonly sizeBytes?: number;
  /** When its files were written, in milliseconds since 1970. */
  readonly modifiedMs?: number;
  /** Maximum number of concurrent requests. Default 4. */
  readonly maxSessions?: number;
  /** Idle time in milliseconds after which it is unloaded. Default: that of the server. */
  readonly unloadAfterMs?: number;
  /**
   * Fetches what is missing and plans the memory.
   * @returns undefined when there is no such model after all
   * @throws {ArgumentError} when the model cannot do this kind of work
   * @throws the signal's reason when aborted
   */
  prepare(kind: ModelKind, options: { readonly signal: AbortSignal }): Promise<PreparedModel | undefined>;
}

export interface ModelCatalog {
  /** The models that can be loaded, by id. */
  list(): Promise<readonly AvailableModel[]>;
  /** The model of a name, which comes from a client; undefined: none. */
  find(name: string): Promise<AvailableModel | undefined>;
}

/** Why a model was unloaded: for the memory of others, after its idle time, or with the server. */
export type UnloadReason = 'memory' | 'idle' | 'shutdown';

/** What happened to a model, for a log. */
export type ModelEvent = { readonly model: string; readonly kind: ModelKind } & (
  | { readonly event: 'loading' }
  | { readonly event: 'loaded'; readonly durationMs: number; readonly memoryBytes: number }
  | { readonly event: 'failed'; readonly durationMs: number; readonly error: unknown }
  /** Everyone who waited for the model has left. */
  | { readonly event: 'canceled'; readonly durationMs: number }
  | { readonly event: 'unloaded'; readonly reason: UnloadReason; readonly memoryBytes: number }
);
