/** `winnow serve`: serves models over HTTP with the APIs of OpenAI, Anthropic and Ollama. */
import { pageUrl } from '@winnow/playground';
import { definedFields } from '@winnow/tensor';
import type { Command, Option } from 'commander';
import { statSync } from 'node:fs';
import type {
  EmbeddingLoadOptions,
  EmbeddingModel,
  LoadOptions,
  Model,
  PromptStore,
  RerankerLoadOptions,
} from '@winnow/engine';
import { totalmem } from 'node:os';
import type { OnDemandOptions, ServedModel, ServerOptions } from '@winnow/server';
import type { CommandContext, CommandHost } from './command-host.js';
import { executionOptionsOf } from '../flags/engine-options.js';
import { UsageError } from '../errors/errors.js';
import { displayName } from '../models/model-location.js';
import { isEncoderError, openDraftedModel } from '../models/open-model.js';
import { suggest } from '../errors/suggestion.js';
import {
  addGroup,
  choiceOption,
  flag,
  listOption,
  listWithAliases,
  numberOption,
  numberRules,
  sizeOption,
  withAliases,
} from '../flags/builders.js';
import { describe } from '../flags/help.js';
import { addAttentionOptions, addLoadOptions, addSpeculativeOption, type LoadFlags } from '../flags/load.js';
import { addressOptions, limitOptions, httpLimitsOf, millisecondsOf, type HttpFlags } from '../flags/http.js';
import { addSharedCacheOptions } from '../flags/shared-cache.js';
import { poolingOption } from '../flags/embedding.js';
import { refuse } from '../flags/parse-values.js';
import { createCatalog } from '../models/on-demand/catalog.js';
import { noSettings, optionsOf, readSettings } from '../models/on-demand/settings.js';
import { openEmbeddingModel, openReranker } from '../models/open-embedding-model.js';
import { blobForms, openBlobs } from '../models/blobs.js';
import { addServeBatchOptions, openBatches, type ServeBatchFlags } from './serve-batches.js';
import { errorLog, modelLog, requestLog } from './serve-log.js';
import { stopSignal } from './stop-signal.js';

interface ServeFlags extends LoadFlags, HttpFlags, ServeBatchFlags {
  readonly corsOrigin?: readonly string[];
  readonly cacheDir?: string;
  readonly cacheSize?: number;
  readonly cacheStore?: string;
  readonly modelsDir?: string;
  readonly hub?: boolean;
  readonly modelsFile?: string;
  readonly maxLoadedModels?: number;
  readonly unloadAfter?: number;
  readonly page: boolean;
  readonly pageOrigin?: readonly string[];
  readonly modelId?: readonly string[];
  readonly embeddingModel?: readonly string[];
  readonly embeddingModelId?: readonly string[];
  readonly reranker?: readonly string[];
  readonly rerankerId?: readonly string[];
  readonly pooling?: EmbeddingModel['pooling'];
  readonly maxSessions: number;
  readonly maxQueued?: number;
  readonly queueTimeout?: number;
  readonly compileTimeout?: number;
  readonly maxStored?: number;
  readonly requestsPerMinute?: number;
  readonly tokensPerMinute?: number;
}

const examples = `
Examples:
  $ winnow serve
  $ winnow serve model.gguf --port 8080 -c 8192 --max-sessions 4 --kv-capacity 16384
  $ winnow serve --models-dir ~/models --memory 16GB --unload-after 300
  $ winnow serve --hub --models-file models.json
  $ winnow serve hf:owner/name:q4_k_m --embedding-model ./bge-small-en-v1.5
  $ WINNOW_API_KEY=secret winnow serve model.gguf --host 0.0.0.0 --cors-origin https://app.example

Clients of OpenAI's API use http://127.0.0.1:8080/v1 as their base URL, those of Anthropic and Ollama the same without
/v1. Browsers get a page to chat at the address itself. Without --host only this machine can connect. All requests to a
model share one KV cache (--kv-capacity). After Ctrl-C or SIGTERM, running requests finish within --grace seconds and the exit code is 0.
`;

const { count, fromZero, positive } = numberRules;
function maxSessionsOption(): Option {
  return numberOption('--max-sessions <n>', 'maximum number of concurrent requests per model', count);
}

function addServerOptions(command: Command): void {
  addGroup(command, {
    heading: 'Server',
    common: [
      ...addressOptions(),
      listOption('--api-key <key>', 'require this key; may be repeated (default: WINNOW_API_KEY, if set)'),
      listOption('--cors-origin <origin>', 'allow pages of this origin, * for all; may be repeated'),
      flag('--no-page', 'no page for browsers at /'),
      listOption('--page-origin <origin>', 'let the page contact MCP servers of this origin; may be repeated'),
      ...listWithAliases(
        listOption('--model-id <id>', 'id of a model in the API, in the order of the models; may be repeated'),
        '--alias <id>',
      ),
      listOption('--embedding-model <model>', 'model for /v1/embeddings; may be repeated'),
      ...listWithAliases(
        listOption('--embedding-model-id <id>', 'id of an embedding model in the API, in their order; may be repeated'),
        '--embedding-alias <id>',
      ),
      listOption('--reranker <model>', 'model for /v1/rerank; may be repeated'),
      listOption('--reranker-id <id>', 'id of a reranker in the API, in their order; may be repeated'),
      ...withAliases(maxSessionsOption().default(4), '--parallel <n>'),
    ],
    advanced: [
      flag('--share-prefixes', 'share cached prefixes among API keys; timing then reveals the prompts of other keys'),
      poolingOption(),
      numberOption(
        '--max-queued <n>',
        'maximum number of waiting requests per model; more get 429 (default: 64)',
        fromZero,
      ),
      numberOption('--queue-timeout <s>', 'seconds a request may wait before it gets 503 (default: 60)', positive),
      numberOption(
        '--compile-timeout <s>',
        'seconds that compiling a grammar or schema may take; a slower one gets 400 (default: 10)',
        positive,
      ),
      ...limitOptions({ requestTimeout: 600, keepAlive: 10, maxBody: '4MiB', maxConnections: 512 }),
      sizeOption('--max-stored <size>', 'maximum size of the conversations that /v1/responses stores (default: 64MiB)'),
      ...rateOptions(),
    ],
  });
}

/** Models that are loaded when requests ask for them. */
function addOnDemandOptions(command: Command): void {
  addGroup(command, {
    heading: 'Models on demand',
    common: [
      flag('--models-dir <folder>', 'load models of this folder when they are first asked for'),
      flag('--hub', 'load models of the hub that requests name, such as owner/name:q4_k_m'),
      flag('--models-file <file>', 'JSON file with the settings of single models'),
    ],
    advanced: [
      numberOption(
        '--max-loaded-models <n>',
        'maximum number of models loaded on demand (default: as many as fit)',
        count,
      ),
      numberOption('--unload-after <s>', 'idle seconds after which these are unloaded (default: never)', fromZero),
    ],
  });
}

function rateOptions(): Option[] {
  return [
    numberOption(
      '--requests-per-minute <n>',
      'maximum number of requests per minute of each API key (default: none)',
      count,
    ),
    numberOption(
      '--tokens-per-minute <n>',
      'maximum number of tokens per minute of each API key (default: none)',
      count,
    ),
  ];
}

/** Pages of prompts in files. */
function addPromptCacheOptions(command: Command): void {
  addGroup(command, {
    heading: 'Context and KV cache',
    advanced: [
      flag('--cache-dir <folder>', 'keep pages of prompts in this folder for later runs (default: none)'),
      sizeOption('--cache-size <size>', 'maximum size of these pages (default: 10GB)'),
      flag('--cache-store <url>', `share pages of prompts with other servers (default: none): ${blobForms}`),
    ],
  });
}

export function registerServe(program: Command, host: CommandHost): void {
  const command = program.command('serve').argument('[models...]', 'the models (default: the demo model)');
  addServerOptions(command);
  addServeBatchOptions(command);
  addOnDemandOptions(command);
  addSpeculativeOption(addLoadOptions(addAttentionOptions(command)));
  addSharedCacheOptions(command);
  addPromptCacheOptions(command);
  addGroup(command, {
    heading: 'Output',
    common: [flag('-q, --quiet', 'print only errors to stderr, no request log')],
    advanced: [
      choiceOption('--log-format <format>', 'request log as text or as lines of JSON', ['text', 'json'], 'text'),
      flag('--profile', 'time every op; with --sparsity, /metrics reports layers and predictors'),
      flag('--visited-keys', 'count the keys that attention visits, for /metrics and the live view of the page'),
    ],
  });
  describe(command, 'Serves models over HTTP with the APIs of OpenAI, Anthropic and Ollama.', examples);
  command.action((models: readonly string[], flags: ServeFlags) =>
    host.run(flags, (context) => serve(models, flags, context)),
  );
}

async function serve(names: readonly string[], flags: ServeFlags, context: CommandContext): Promise<void> {
  const { io, out, warn } = context;
  const { embeddingModel: embeddingNames = [], modelId: ids = [], embeddingModelId: embeddingIds = [] } = flags;
  const promptCache = await openPromptCache(flags, context);
  const onDemand = onDemandOptions(flags, promptCache, context);
  const { reranker: rerankerNames = [], rerankerId: rerankerIds = [] } = flags;
  const isDemo = [names, embeddingNames, rerankerNames].every(({ length }) => length === 0) && onDemand === undefined;
  // if only workers answer lines, this process needs no model
  const wanted = isDemo && flags.batchSessions !== 0 ? [undefined] : names;
  checkNumIds('--model-id', ids, wanted.length, 'model');
  checkNumIds('--embedding-model-id', embeddingIds, embeddingNames.length, 'embedding model');
  checkNumIds('--reranker-id', rerankerIds, rerankerNames.length, 'reranker');
  const apiKeys = flags.apiKey ?? (io.env['WINNOW_API_KEY'] ? [io.env['WINNOW_API_KEY']] : []);
  const batches = await openBatches(flags, io);
  const owned: OwnedModel[] = [];
  try {
    const openGenerative = (name: string | undefined): Promise<Model> =>
      openGenerativeModel(name, flags, promptCache, context);
    const opened = await openAll(wanted, ids, owned, openGenerative);
    const models = opened.map((served): ServedModel => ({ ...served, maxSessions: flags.maxSessions }));
    const { memory, pooling } = flags;
    const options = { ...executionOptionsOf(flags), ...definedFields<RerankerLoadOptions>({ memory }) };
    const embedding = { ...options, ...definedFields<EmbeddingLoadOptions>({ pooling }) };
    const embeddingModels = await openAll(embeddingNames, embeddingIds, owned, (name) =>
      openEmbeddingModel(name, embedding, context),
    );
    const rerankers = await openAll(rerankerNames, rerankerIds, owned, (name) => openReranker(name, options, context));
    const givenBytes = owned.reduce((sum, { plan }) => sum + plan.totalBytes, 0);
    // the memory that the always-loaded models leave for the others
    const memoryBytes = Math.max(0, (flags.memory ?? totalmem()) - givenBytes);
    const { createServer } = await io.server();
    await using server = await createServer({
      ...serverOptionsOf(flags),
      ...(onDemand === undefined ? {} : { ...onDemand, memoryBytes, onModelEvent: modelLog(flags, context) }),
      models,
      embeddingModels,
      rerankers,
      apiKeys,
      ...(await batches?.optionsOf({ models, embeddingModels, rerankers })),
      onRequest: requestLog(flags, context),
      onError: errorLog(context),
    });
    const url = await server.listen({ port: flags.port, host: flags.host });
    if (apiKeys.length === 0 && !/^(localhost|127\.|::1)/.test(flags.host)) {
      warn('anyone who can reach this address can use the models; --api-key requires a key');
    }
    context.releaseInterrupts();
    const stopped = stopSignal(context);
    await out.write(`listening on ${url}\n`);
    await stopped;
    warn('shutting down: waiting for running requests; press Ctrl-C again to abort them');
    await server.close({ graceMs: flags.grace * 1000 });
  } finally {
    for (const model of owned) await model[Symbol.asyncDispose]();
    await batches?.close();
  }
}

/** A model that the command disposes of. */
type OwnedModel = AsyncDisposable & Pick<Model, 'name' | 'plan'>;

/** Opens models one after the other, and adds them to `owned`. Ids belong to the first names. */
async function openAll<N extends string | undefined, M extends OwnedModel>(
  names: readonly N[],
  ids: readonly string[],
  owned: OwnedModel[],
  open: (name: N) => Promise<M>,
): Promise<{ readonly id: string; readonly model: M }[]> {
  const served: { readonly id: string; readonly model: M }[] = [];
  for (const [index, name] of names.entries()) {
    const model = await open(name);
    owned.push(model);
    served.push({ id: ids[index] ?? displayName(name, model.name), model });
  }
  return served;
}

type PromptCacheOption = Pick<LoadOptions, 'promptCache'>;

const defaultCacheBytes = 10e9;

/** Stores for all models: first a folder of this server, then the store that it shares with others. */
async function openPromptCache(
  { cacheDir, cacheSize, cacheStore }: ServeFlags,
  { io }: CommandContext,
): Promise<PromptCacheOption> {
  const stores: PromptStore[] = [];
  if (cacheDir !== undefined) {
    const { openPromptStore } = await io.engine();
    stores.push(await openPromptStore(cacheDir, { maxBytes: cacheSize ?? defaultCacheBytes }));
  } else if (cacheSize !== undefined) throw new UsageError('--cache-size: requires --cache-dir');
  if (cacheStore !== undefined) {
    const { createBlobPromptStore } = await import('@winnow/server');
    stores.push(createBlobPromptStore(await openBlobs('--cache-store', cacheStore)));
  }
  return stores.length === 0 ? {} : { promptCache: stores };
}

/** Undefined without a source of models that are loaded on demand. */
function onDemandOptions(
  flags: ServeFlags,
  promptCache: PromptCacheOption,
  context: CommandContext,
): OnDemandOptions | undefined {
  const { modelsDir: folder, hub = false, modelsFile, maxLoadedModels, unloadAfter } = flags;
  if (folder === undefined && !hub && modelsFile === undefined) {
    if (maxLoadedModels === undefined && unloadAfter === undefined) return undefined;
    const name = maxLoadedModels === undefined ? '--unload-after' : '--max-loaded-models';
    throw new UsageError(`${name}: requires --models-dir, --hub or --models-file`);
  }
  if (folder !== undefined && statSync(folder, { throwIfNoEntry: false })?.isDirectory() !== true) {
    throw refuse('--models-dir', 'a folder', folder);
  }
  const settings =
    modelsFile === undefined
      ? noSettings
      : readSettings(
          modelsFile,
          optionsOf(addAttentionOptions, addLoadOptions, addSharedCacheOptions, addSpeculativeOption, addModelOptions),
        );
  const unloadAfterMs = unloadAfter === undefined ? undefined : unloadAfter * 1000;
  const catalog = createCatalog({ folder, hub, settings, promptCache }, flags, context);
  return { catalog, ...definedFields<OnDemandOptions>({ maxLoadedModels, unloadAfterMs }) };
}

/** Settings of a model that are flags of the server. */
function addModelOptions(command: Command): void {
  command.addOption(maxSessionsOption()).addOption(poolingOption());
}

function checkNumIds(flagName: string, ids: readonly string[], numModels: number, what: string): void {
  if (ids.length <= numModels) return;
  throw new UsageError(`${flagName}: expected at most ${numModels}, one per ${what}, got ${ids.length}`);
}

function serverOptionsOf(flags: ServeFlags): ServerOptions {
  return definedFields<ServerOptions>({
    corsOrigins: flags.corsOrigin,
    page: flags.page ? pageUrl : undefined,
    pageOrigins: flags.pageOrigin,
    sharePrefixes: flags.sharePrefixes,
    maxQueued: flags.maxQueued,
    queueTimeoutMs: millisecondsOf(flags.queueTimeout),
    compileTimeoutMs: millisecondsOf(flags.compileTimeout),
    ...httpLimitsOf(flags),
    maxStoredBytes: flags.maxStored,
    requestsPerMinute: flags.requestsPerMinute,
    tokensPerMinute: flags.tokensPerMinute,
  });
}

/** Encoders are served with another flag. */
async function openGenerativeModel(
  name: string | undefined,
  flags: ServeFlags,
  promptCache: PromptCacheOption,
  context: CommandContext,
): Promise<Model> {
  try {
    return await openDraftedModel(name, { kvWhenFull: 'wait', ...flags }, context, promptCache);
  } catch (error) {
    if (name === undefined || !isEncoderError(error)) throw error;
    throw suggest(error, { argument: name, instead: ['--embedding-model', name] });
  }
}
