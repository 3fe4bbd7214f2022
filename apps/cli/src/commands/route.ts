/** `winnow route`: one address for several servers. */
import { definedFields } from '@winnow/tensor';
import type { Command } from 'commander';
import type { RouterOptions, UpstreamEvent } from '@winnow/server/router';
import { addressOptions, limitOptions, httpLimitsOf, millisecondsOf, type HttpFlags } from '../flags/http.js';
import {
  addGroup,
  choiceOption,
  flag,
  listOption,
  numberOption,
  numberRules,
  parsedOption,
} from '../flags/builders.js';
import { describe } from '../flags/help.js';
import { parseNumber } from '../flags/parse-values.js';
import type { CommonFlags } from '../flags/load.js';
import type { CommandContext, CommandHost } from './command-host.js';
import { errorLog, requestLog } from './serve-log.js';
import { stopSignal } from './stop-signal.js';

interface RouteFlags extends CommonFlags, HttpFlags {
  readonly upstream: readonly string[];
  readonly batchUpstream?: string;
  readonly upstreamApiKey?: string;
  readonly loadFactor?: number;
  readonly checkEvery?: number;
}

const examples = `
Examples:
  $ winnow route --upstream http://127.0.0.1:8081 --upstream http://127.0.0.1:8082
  $ winnow route --upstream http://10.0.0.5:8080 --upstream http://10.0.0.6:8080 --host 0.0.0.0 --api-key secret

Upstreams are servers such as winnow serve. A prompt goes to the one that computed the longest beginning of it, a new one to the
server of its beginning or, when that has more than its share, to the next. Until the first token another server takes over from one
that fails; after it, the stream ends with an error event. After Ctrl-C or SIGTERM, running requests finish within --grace
seconds and the exit code is 0.
`;

const loadFactor = { expected: 'a number from 1', isValid: (value: number) => value >= 1 };

function addRouteOptions(command: Command): void {
  addGroup(command, {
    heading: 'Router',
    common: [
      listOption('--upstream <url>', 'address of a server; repeat it for each').makeOptionMandatory(),
      flag('--batch-upstream <url>', 'the server for /v1/files and /v1/batches (default: these are refused)'),
      ...addressOptions(),
      listOption(
        '--api-key <key>',
        'require this key, which is passed on; may be repeated (default: servers check keys)',
      ),
      flag(
        '--upstream-api-key <key>',
        'key for /metrics and /v1/models of the servers (default: WINNOW_API_KEY, if set)',
      ),
    ],
    advanced: [
      flag('--share-prefixes', 'the servers share cached prefixes among API keys'),
      parsedOption('--load-factor <x>', 'how far above the mean a server may be loaded (default: 1.25)', (name, text) =>
        parseNumber(name, text, loadFactor),
      ),
      numberOption('--check-every <s>', 'seconds between health checks (default: 2)', numberRules.positive),
      ...limitOptions({
        requestTimeout: 900,
        keepAlive: 15,
        maxBody: '4MiB; uploads: any size',
        maxConnections: 4096,
      }),
    ],
  });
  addGroup(command, {
    heading: 'Output',
    common: [flag('-q, --quiet', 'print only errors to stderr, no request log')],
    advanced: [
      choiceOption('--log-format <format>', 'request log as text or as lines of JSON', ['text', 'json'], 'text'),
    ],
  });
}

export function registerRoute(program: Command, host: CommandHost): void {
  const command = program.command('route');
  addRouteOptions(command);
  describe(command, 'Distributes requests among servers by the beginnings of their prompts.', examples);
  command.action((flags: RouteFlags) => host.run(flags, (context) => route(flags, context)));
}

async function route(flags: RouteFlags, context: CommandContext): Promise<void> {
  const { io, out, warn } = context;
  const { createRouter } = await io.router();
  await using router = await createRouter({
    ...routerOptionsOf(flags, io.env['WINNOW_API_KEY']),
    onRequest: requestLog(flags, context),
    onUpstream: (event) => warn(upstreamLine(event)),
    onError: errorLog(context),
  });
  const url = await router.listen({ port: flags.port, host: flags.host });
  context.releaseInterrupts();
  const stopped = stopSignal(context);
  await out.write(`listening on ${url}\n`);
  await stopped;
  warn('shutting down: waiting for running requests; press Ctrl-C again to abort them');
  await router.close({ graceMs: flags.grace * 1000 });
}

function upstreamLine({ upstream, state, reason }: UpstreamEvent): string {
  return `${upstream} is ${state}${reason === undefined ? '' : `: ${reason}`}`;
}

function routerOptionsOf(flags: RouteFlags, environmentKey: string | undefined): RouterOptions {
  return {
    upstreams: flags.upstream,
    ...definedFields<Omit<RouterOptions, 'upstreams'>>({
      batchUpstream: flags.batchUpstream,
      upstreamApiKey: flags.upstreamApiKey ?? (environmentKey === '' ? undefined : environmentKey),
      apiKeys: flags.apiKey,
      sharePrefixes: flags.sharePrefixes,
      loadFactor: flags.loadFactor,
      checkIntervalMs: millisecondsOf(flags.checkEvery),
      ...httpLimitsOf(flags),
    }),
  };
}
