/** `winnow serve`: models over HTTP, with the API of OpenAI. */
import type { Command } from 'commander';
import type { LoadOptions } from '@winnow/engine';
import type { RequestRecord, ServedEmbeddingModel, ServedModel, ServerOptions } from '@winnow/server';
import type { CommandContext, CommandHost } from '../command-host.js';
import { openEmbeddingModel, type EmbeddingFlags } from '../embedding-options.js';
import { attentionOf, defined } from '../engine-options.js';
import { exitCodes, UsageError } from '../errors.js';
import { displayName } from '../model-location.js';
import { openModel } from '../open-model.js';
import {
  addAttentionOptions,
  addLoadOptions,
  choiceOption,
  listOption,
  numberOption,
  numberRules,
  sizeOption,
  type LoadFlags,
} from '../options.js';

interface ServeFlags extends LoadFlags {
  readonly host: string;
  readonly port: number;
  readonly apiKey?: readonly string[];
  readonly cors?: readonly string[];
  readonly alias?: readonly string[];
  readonly embeddingModel?: readonly string[];
  readonly pooling?: EmbeddingFlags['pooling'];
  readonly parallel: number;
  readonly cacheSize?: number;
  readonly queue?: number;
  readonly queueTimeout?: number;
  readonly timeout?: number;
  readonly bodyLimit?: number;
  readonly grace: number;
}

const examples = `
Examples:
  $ winnow serve
  $ winnow serve model.gguf --port 8080 -c 8192 --parallel 4 --cache-size 16384
  $ winnow serve hf:owner/name:q4_k_m --embedding-model ./bge-small-en-v1.5
  $ WINNOW_API_KEY=secret winnow serve model.gguf --host 0.0.0.0 --cors https://app.example

Clients of OpenAI reach it at http://127.0.0.1:8080/v1; GET /v1/models lists the names of the models. Without --host only this
machine can. The prompt, and what is cached of it, takes its place in the cache that all requests share (--cache-size).
Ctrl-C or SIGTERM: running answers are finished (at most --grace seconds), then the exit code is 0.
`;

const { count, fromZero, positive } = numberRules;
const port = {
  integer: true,
  expected: 'a port from 0 to 65535',
  isValid: (value: number) => value >= 0 && value < 65536,
};

export function registerServe(program: Command, host: CommandHost): void {
  const command = program.command('serve').argument('[models...]', 'the models; without any the demo model');
  command.description('Serves models over HTTP, with the API of OpenAI.').addHelpText('after', examples);
  command
    .addOption(numberOption('--port <n>', 'the port; 0: one that is free', port).default(8080))
    .option('--host <address>', 'the address to listen at; 0.0.0.0: all of this machine', '127.0.0.1')
    .addOption(
      listOption('--api-key <key>', 'ask requests for this key; may be repeated; default: WINNOW_API_KEY, if set'),
    )
    .addOption(listOption('--cors <origin>', 'let pages of this origin in, * for all; may be repeated; default: none'))
    .addOption(listOption('--alias <name>', 'what requests call the models, in their order; may be repeated'))
    .addOption(listOption('--embedding-model <model>', 'a model for /v1/embeddings; may be repeated'))
    .addOption(
      choiceOption('--pooling <kind>', 'how tokens of embedded texts become one vector; default: as the model says', [
        'mean',
        'cls',
        'last',
        'max',
        'weighted-mean',
        'mean-sqrt',
      ]),
    )
    .addOption(numberOption('--parallel <n>', 'requests that are answered at a time, per model', count).default(4))
    .addOption(numberOption('--cache-size <n>', 'tokens that their caches hold together; default: --ctx-size', count))
    .addOption(numberOption('--queue <n>', 'requests that may wait, per model; more get 429; default 64', fromZero))
    .addOption(numberOption('--queue-timeout <s>', 'how long one may wait before it gets 503; default 60', positive))
    .addOption(numberOption('--timeout <s>', 'how long one may take in all; default 600', positive))
    .addOption(sizeOption('--body-limit <size>', 'most bytes of a request; default 4MiB'))
    .addOption(numberOption('--grace <s>', 'how long running answers may take at the end', fromZero).default(30));
  addLoadOptions(addAttentionOptions(command))
    .option('--profile', 'measure every op: with --sparse /metrics has the time of layers and predictors')
    .option('-q, --quiet', 'only errors on stderr: no line per request');
  command.action((models: readonly string[], flags: ServeFlags) =>
    host.run(flags, (context) => serve(models, flags, context)),
  );
}

async function serve(names: readonly string[], flags: ServeFlags, context: CommandContext): Promise<void> {
  const { io, out, warn } = context;
  const { embeddingModel: embeddingNames = [], alias = [] } = flags;
  const wanted = names.length > 0 || embeddingNames.length > 0 ? names : [undefined];
  if (alias.length > wanted.length) {
    throw new UsageError(`--alias: expected at most ${wanted.length}, one per model, got ${alias.length}`);
  }
  const apiKeys = flags.apiKey ?? (io.env['WINNOW_API_KEY'] ? [io.env['WINNOW_API_KEY']] : []);
  const owned: AsyncDisposable[] = [];
  try {
    const models: ServedModel[] = [];
    for (const [index, name] of wanted.entries()) {
      const model = await openModel(name, flags, context, attentionOf(flags), sharedBy(flags));
      owned.push(model);
      models.push({ id: alias[index] ?? displayName(name, model.name), model, maxConcurrent: flags.parallel });
    }
    const embeddingModels: ServedEmbeddingModel[] = [];
    for (const name of embeddingNames) {
      const { threads, backend, activations, memory, pooling } = flags;
      const embeddingFlags = defined<EmbeddingFlags>({ threads, backend, activations, memory, pooling });
      const model = await openEmbeddingModel(name, embeddingFlags, context);
      owned.push(model);
      embeddingModels.push({ id: displayName(name, model.name), model });
    }
    const { createServer } = await io.server();
    await using server = await createServer({
      ...serverOptionsOf(flags),
      models,
      embeddingModels,
      apiKeys,
      onRequest: (record) => warn(requestLine(record)),
      onError: (error) => {
        io.stderr.write(`winnow: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
      },
    });
    const url = await server.listen({ port: flags.port, host: flags.host });
    if (apiKeys.length === 0 && !/^(localhost|127\.|::1)/.test(flags.host)) {
      warn('anybody who reaches this address can use the models: --api-key asks for a key');
    }
    context.releaseInterrupts();
    const stopped = stopSignal(context);
    await out.write(`listening on ${url}\n`);
    await stopped;
    warn('closing: running answers are finished; Ctrl-C ends them');
    await server.close({ graceMs: flags.grace * 1000 });
  } finally {
    for (const model of owned) await model[Symbol.asyncDispose]();
  }
}

/** Requests share the cache, and wait for each other when it is full. */
function sharedBy({ parallel, cacheSize }: ServeFlags): LoadOptions {
  return { maxSessions: parallel, whenFull: 'wait', ...defined<LoadOptions>({ cacheSize }) };
}

function serverOptionsOf({ cors, queue, queueTimeout, timeout, bodyLimit }: ServeFlags): ServerOptions {
  const milliseconds = (seconds: number | undefined): number | undefined =>
    seconds === undefined ? undefined : Math.max(1, Math.round(seconds * 1000));
  return defined<ServerOptions>({
    corsOrigins: cors,
    maxQueued: queue,
    queueTimeoutMs: milliseconds(queueTimeout),
    requestTimeoutMs: milliseconds(timeout),
    maxBodyBytes: bodyLimit,
  });
}

/** Resolves with the first Ctrl-C or SIGTERM; one more ends the process. */
function stopSignal({ io }: CommandContext): Promise<void> {
  return new Promise((resolve) => {
    let isStopping = false;
    const stop = (): void => {
      if (isStopping) io.exitNow(exitCodes.interrupted);
      isStopping = true;
      resolve();
    };
    io.onInterrupt(stop);
    io.onTerminate(stop);
  });
}

function requestLine({ method, path, status, durationMs, requestId }: RequestRecord): string {
  return `${method} ${path} ${status} ${(durationMs / 1000).toFixed(3)} s ${requestId}`;
}
