/** Models behind the request handlers of the server, but without a network connection: they answer lines of batches. */
import type { EmbeddingLoadOptions, EmbeddingModel, Reranker, RerankerLoadOptions } from '@winnow/engine';
import type { WorkerPool } from '@winnow/jobs';
import type { ServedModel, WinnowServer } from '@winnow/server';
import { definedFields } from '@winnow/tensor';
import { executionOptionsOf } from '../../flags/engine-options.js';
import type { EmbeddingFlags } from '../../flags/embedding.js';
import type { LoadFlags } from '../../flags/load.js';
import { fitSessions, type SessionFlags } from '../../models/fit-sessions.js';
import { displayName } from '../../models/model-location.js';
import { openEmbeddingModel, openReranker } from '../../models/open-embedding-model.js';
import { openDraftedModel } from '../../models/open-model.js';
import type { CommandContext } from '../command-host.js';
import { unnamedQueues } from '../queue/open-queue.js';
import { errorLog } from '../serve-log.js';

/** A model to load, and its name in lines. */
export interface NamedModel<N extends string | undefined = string | undefined> {
  /** Undefined: the demo model. */
  readonly model: N;
  /** Default: its own name. */
  readonly id: string | undefined;
}

export interface LineModels {
  readonly models: readonly NamedModel[];
  readonly embeddingModels: readonly NamedModel[];
  readonly rerankers: readonly NamedModel<string>[];
}

export type LineFlags = LoadFlags & Pick<EmbeddingFlags, 'pooling'>;

export interface LineServer {
  readonly server: WinnowServer;
  /** The queues of each model, and the number of lines that it answers at once. */
  readonly pools: readonly WorkerPool[];
  readonly models: readonly { readonly id: string; readonly model: string | undefined }[];
  readonly embeddingModels: readonly { readonly id: string; readonly model: EmbeddingModel }[];
}

/** A line may wait for others that share the KV cache, so the time limit of a connected client does not apply. */
const lineTimeoutMs = 24 * 60 * 60 * 1000;
/** Texts are embedded, or ranked, one after the other; one more line is prepared meanwhile. */
const numTextLines = 2;

/** @param use works with the server, which then ends */
export async function withLineServer(
  wanted: LineModels,
  flags: LineFlags,
  context: CommandContext,
  use: (lines: LineServer) => Promise<void>,
): Promise<void> {
  const owned: AsyncDisposable[] = [];
  try {
    await use(await openServer(wanted, flags, context, owned));
  } finally {
    for (const each of owned.toReversed()) await each[Symbol.asyncDispose]();
  }
}

/** @param owned gets what must be disposed of, in the order in which it was opened */
async function openServer(
  wanted: LineModels,
  flags: LineFlags,
  context: CommandContext,
  owned: AsyncDisposable[],
): Promise<LineServer> {
  const numModels = wanted.models.length + wanted.embeddingModels.length + wanted.rerankers.length;
  const fitted: (NamedModel & { readonly flags: SessionFlags })[] = [];
  for (const each of wanted.models) {
    fitted.push({ ...each, flags: await fitSessions(each.model, flags, context, numModels) });
  }
  const models: (ServedModel & { readonly name: string | undefined; readonly maxSessions: number })[] = [];
  for (const { model: name, id, flags: sessions } of fitted) {
    const model = await openDraftedModel(name, { ...sessions, kvWhenFull: 'wait' }, context);
    owned.push(model);
    models.push({ id: id ?? displayName(name, model.name), name, model, maxSessions: sessions.maxSessions });
  }
  const { embeddingModels, rerankers } = await openTextModels(wanted, flags, numModels, context, owned);
  const { createServer } = await import('@winnow/server');
  const server = await createServer({
    models: models.map(({ id, model, maxSessions }) => ({ id, model, maxSessions })),
    embeddingModels,
    rerankers,
    requestTimeoutMs: lineTimeoutMs,
    onError: errorLog(context),
  });
  owned.push(server);
  const sizes = models.map(({ id, maxSessions }): [string, number] => [id, maxSessions]);
  const named = models.map(({ id, name }) => ({ id, model: name }));
  return { server, pools: await poolsOf(sizes, embeddingModels, rerankers), models: named, embeddingModels };
}

interface TextModels {
  readonly embeddingModels: readonly { readonly id: string; readonly model: EmbeddingModel }[];
  readonly rerankers: readonly { readonly id: string; readonly model: Reranker }[];
}

/** Opens what embeds and what ranks texts. @param numModels that share the memory in equal parts */
async function openTextModels(
  wanted: LineModels,
  flags: LineFlags,
  numModels: number,
  context: CommandContext,
  owned: AsyncDisposable[],
): Promise<TextModels> {
  const memory = flags.memory === undefined ? undefined : Math.floor(flags.memory / numModels);
  const options = { ...executionOptionsOf(flags), ...definedFields<RerankerLoadOptions>({ memory }) };
  const embedding = { ...options, ...definedFields<EmbeddingLoadOptions>({ pooling: flags.pooling }) };
  return {
    embeddingModels: await openEach(
      wanted.embeddingModels,
      (name) => openEmbeddingModel(name, embedding, context),
      owned,
    ),
    rerankers: await openEach(wanted.rerankers, (name) => openReranker(name, options, context), owned),
  };
}

async function openEach<N extends string | undefined, Opened extends AsyncDisposable & { readonly name: string }>(
  wanted: readonly NamedModel<N>[],
  open: (name: N) => Promise<Opened>,
  owned: AsyncDisposable[],
): Promise<{ readonly id: string; readonly model: Opened }[]> {
  const opened: { readonly id: string; readonly model: Opened }[] = [];
  for (const { model: name, id } of wanted) {
    const model = await open(name);
    owned.push(model);
    opened.push({ id: id ?? displayName(name, model.name), model });
  }
  return opened;
}

type Identified = readonly { readonly id: string }[];

/** A model that both generates and embeds has one pool. */
async function poolsOf(
  models: readonly (readonly [id: string, maxSessions: number])[],
  embeddingModels: Identified,
  rerankers: Identified,
): Promise<WorkerPool[]> {
  const pools = new Map<string, { readonly queues: string[]; concurrency: number }>();
  const add = (id: string, concurrency: number, others: readonly string[]): void => {
    const pool = pools.get(id) ?? { queues: [id], concurrency: 0 };
    pool.queues.push(...others);
    pool.concurrency += concurrency;
    pools.set(id, pool);
  };
  const unnamed = await unnamedQueues('/v1/completions', models.length);
  const unnamedTexts = await unnamedQueues('/v1/embeddings', embeddingModels.length);
  const unnamedRanking = await unnamedQueues('/v1/rerank', rerankers.length);
  for (const [id, maxSessions] of models) add(id, maxSessions, unnamed);
  for (const { id } of embeddingModels) add(id, numTextLines, unnamedTexts);
  for (const { id } of rerankers) add(id, numTextLines, unnamedRanking);
  return [...pools.values()];
}
