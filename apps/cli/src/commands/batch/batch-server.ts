/** The models of a batch behind the handlers of the server, without a connection. */
import type { EmbeddingLoadOptions } from '@winnow/engine';
import type { BatchEndpoint, ServedEmbeddingModel, ServedModel, WinnowServer } from '@winnow/server';
import { definedFields } from '@winnow/tensor';
import { executionOptionsOf } from '../../flags/engine-options.js';
import { fitSessions } from '../../models/fit-sessions.js';
import { displayName } from '../../models/model-location.js';
import { openEmbeddingModel } from '../../models/open-embedding-model.js';
import { openDraftedModel } from '../../models/open-model.js';
import type { CommandContext } from '../command-host.js';
import { errorLog } from '../serve-log.js';
import type { BatchFlags } from './command.js';

export interface BatchServer {
  readonly server: WinnowServer;
  /** Number of lines that can run at once. */
  readonly numSessions: number;
}

/** A line may wait for others that share the KV cache: no limit of a connected client applies. */
const lineTimeoutMs = 24 * 60 * 60 * 1000;
/** Texts are embedded one after the other; one more line is prepared meanwhile. */
const numEmbeddingLines = 2;

/** @param endpoints that the lines ask for, which decides what is loaded @param use works with the server, which then ends */
export async function withBatchServer(
  endpoints: ReadonlySet<BatchEndpoint>,
  flags: BatchFlags,
  context: CommandContext,
  use: (batch: BatchServer) => Promise<void>,
): Promise<void> {
  const owned: AsyncDisposable[] = [];
  try {
    await use(await openServer(endpoints, flags, context, owned));
  } finally {
    for (const each of owned.toReversed()) await each[Symbol.asyncDispose]();
  }
}

/** @param owned gets what must be disposed of, in the order in which it was opened */
async function openServer(
  endpoints: ReadonlySet<BatchEndpoint>,
  flags: BatchFlags,
  context: CommandContext,
  owned: AsyncDisposable[],
): Promise<BatchServer> {
  const models: ServedModel[] = [];
  const embeddingModels: ServedEmbeddingModel[] = [];
  let numSessions = 0;
  if (endpoints.has('/v1/chat/completions') || endpoints.has('/v1/completions')) {
    const sessions = await fitSessions(flags.model, flags, context);
    const model = await openDraftedModel(flags.model, { ...sessions, kvWhenFull: 'wait' }, context);
    owned.push(model);
    const id = flags.modelId ?? displayName(flags.model, model.name);
    models.push({ id, model, maxSessions: sessions.maxSessions });
    numSessions += sessions.maxSessions;
  }
  if (endpoints.has('/v1/embeddings')) {
    const { memory, pooling, embeddingModel = flags.model } = flags;
    const options = { ...executionOptionsOf(flags), ...definedFields<EmbeddingLoadOptions>({ memory, pooling }) };
    const model = await openEmbeddingModel(embeddingModel, options, context);
    owned.push(model);
    const id = flags.embeddingModelId ?? flags.modelId ?? displayName(embeddingModel, model.name);
    embeddingModels.push({ id, model });
    numSessions += numEmbeddingLines;
  }
  const { createServer } = await import('@winnow/server');
  const onError = errorLog(context);
  const server = await createServer({ models, embeddingModels, requestTimeoutMs: lineTimeoutMs, onError });
  owned.push(server);
  return { server, numSessions };
}
