/** The model of a request, which stays loaded until the response is closed. */
import type { FastifyReply } from 'fastify';
import type { ModelKind } from '../catalog.js';
import type { EmbeddingEntry, GenerativeEntry, ModelEntry, RerankingEntry } from '../models/model-entry.js';
import { beforeSlot } from './respond.js';
import type { ServerContext } from './server-context.js';

export interface ChooseOptions {
  /** Idle time after which the model is unloaded; a model that was given to the server stays loaded. */
  readonly keepMs?: number | undefined;
}

/**
 * Loads the model if necessary.
 * @param name may be omitted if there is only one generative model
 * @throws {ApiError} 404 for an unknown model, 400 for one that does not generate, 500 or 503 when it cannot be loaded
 */
export async function chooseGenerative(
  context: ServerContext,
  name: string | undefined,
  reply: FastifyReply,
  options: ChooseOptions = {},
): Promise<GenerativeEntry> {
  return (await choose('generative', context, name, reply, options)) as GenerativeEntry;
}

/** @throws {ApiError} as `chooseGenerative`, 400 for a model without embedding support */
export async function chooseEmbedding(
  context: ServerContext,
  name: string | undefined,
  reply: FastifyReply,
  options: ChooseOptions = {},
): Promise<EmbeddingEntry> {
  return (await choose('embedding', context, name, reply, options)) as EmbeddingEntry;
}

/** @throws {ApiError} as `chooseGenerative`, 400 for a model that is not a reranker */
export async function chooseReranking(
  context: ServerContext,
  name: string | undefined,
  reply: FastifyReply,
): Promise<RerankingEntry> {
  return (await choose('reranking', context, name, reply, {})) as RerankingEntry;
}

/** The entry has the kind. */
async function choose(
  kind: ModelKind,
  context: ServerContext,
  name: string | undefined,
  reply: FastifyReply,
  { keepMs }: ChooseOptions,
): Promise<ModelEntry> {
  const { registry } = context;
  const id = name ?? (await registry.onlyId(kind));
  const given = registry.givenEntry(kind, id);
  const { pool } = registry;
  if (given !== undefined || pool === undefined) return given as ModelEntry;
  const lease = await beforeSlot(context, reply, ({ signal }) => pool.acquire(kind, id, signal));
  if (keepMs !== undefined) lease.keepFor(keepMs);
  if (reply.raw.destroyed) lease.release();
  else reply.raw.once('close', lease.release);
  return lease.entry;
}
