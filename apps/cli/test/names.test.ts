/** Options in TypeScript, server settings, flags and guides use the same names. */
import type { GenerateOptions, LoadOptions } from '@winnow/engine';
import type {
  CloseOptions,
  ListenOptions,
  ServedEmbeddingModel,
  ServedModel,
  ServedReranker,
  ServerOptions,
} from '@winnow/server';
import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { flagOf, optionsWithFlags } from '../src/errors/names.js';
import { createFakeEngine } from './fake-engine.js';
import { runCli, type CliRun } from './run-cli.js';
import type { OptionNames } from '@winnow/tensor';

type Names = { readonly [name: string]: true | Names };

/** Every option of `loadModel`; the type rejects missing and unknown ones. */
const loadNames: OptionNames<LoadOptions> = {
  ...{ fetch: true, signal: true, onProgress: true, onEvent: true, promptCache: true, now: true, randomSeed: true },
  ...{
    backend: true,
    createBackend: true,
    threads: true,
    activations: true,
    native: true,
    onUnsupported: true,
    profile: true,
  },
  ...{ context: true, batchSize: true, maxSessions: true, attention: true, policyFile: true, quantize: true },
  ...{ speculative: true, draftModel: true, mmproj: true },
  lora: { adapters: true, mode: true },
  sparsity: { calibration: true, maxActive: true, oracle: true, use: true, verify: true },
  trace: { attention: true, feedForward: true, visitedKeys: true },
  memory: { budget: true, hot: true, warm: true, cold: true, folder: true },
  kvCache: {
    ...{ dtype: true, rotation: true, eviction: { firstTokens: true, recentTokens: true }, capacity: true },
    ...{ budget: true, offload: { memory: true, folder: true }, prefixSharing: true, whenFull: true },
  },
};
const generateNames: OptionNames<GenerateOptions> = {
  ...{ temperature: true, topK: true, topP: true, minP: true, repetitionPenalty: true, presencePenalty: true },
  ...{ frequencyPenalty: true, penaltyWindow: true, seed: true, maxTokens: true, stop: true, ignoreEos: true },
  ...{ numTopLogprobs: true, grammar: true, jsonSchema: true, showTokens: true, overflow: true, promptPhase: true },
  ...{ compileTimeoutMs: true, logitBias: true, spanLimit: true, speculative: true },
  ...{ signal: true, onPromptProgress: true },
};
const serverNames: OptionNames<ServerOptions & ListenOptions & CloseOptions> = {
  ...{
    maxQueued: true,
    queueTimeoutMs: true,
    compileTimeoutMs: true,
    requestTimeoutMs: true,
    stallTimeoutMs: true,
    keepAliveMs: true,
  },
  ...{
    maxBodyBytes: true,
    maxConnections: true,
    maxStoredBytes: true,
    requestsPerMinute: true,
    tokensPerMinute: true,
    apiKeys: true,
    sharePrefixes: true,
    corsOrigins: true,
    pageOrigins: true,
    page: true,
    port: true,
    host: true,
  },
  models: { id: true, model: true, maxSessions: true } satisfies OptionNames<ServedModel>,
  embeddingModels: { id: true, model: true } satisfies OptionNames<ServedEmbeddingModel>,
  rerankers: { id: true, model: true } satisfies OptionNames<ServedReranker>,
  batches: { jobs: true, blobs: true, maxFileBytes: true, concurrency: true, queues: true },
  ...{ graceMs: true, onRequest: true, onError: true },
  ...{ catalog: true, memoryBytes: true, maxLoadedModels: true, unloadAfterMs: true },
  onModelEvent: true,
};

/**
 * The models are the arguments of `winnow serve`, which loads each with as many sessions as the server uses; embedding
 * models are named by `--embedding-model`, rerankers by `--reranker`.
 */
const serveArguments = ['models', 'models.model', 'models.maxSessions', 'embeddingModels.model', 'rerankers.model'];
/** Objects and functions that only a program can pass, and settings that the commands determine. */
const programOnly = [
  ...serveArguments,
  ...['fetch', 'signal', 'onProgress', 'onEvent', 'promptCache', 'now', 'randomSeed', 'draftModel', 'createBackend'],
  'onUnsupported',
  ...[
    'sparsity.oracle',
    'trace',
    'trace.attention',
    'trace.feedForward',
    'trace.visitedKeys',
    'kvCache.offload',
    'kvCache',
    'lora',
  ],
  ...['numTopLogprobs', 'logitBias', 'showTokens', 'spanLimit', 'promptPhase', 'onPromptProgress'],
  ...['batches', 'batches.jobs', 'batches.blobs', 'batches.maxFileBytes', 'batches.concurrency', 'batches.queues'],
  ...['page', 'onRequest', 'onError', 'onModelEvent', 'catalog'],
];
/** Flags about files and terminals, parts of the policy, and flags with two values. */
const commandOnly = [
  ...[
    '--log-format',
    '--visited-keys',
    '--models-dir',
    '--batch-dir',
    '--batch-sessions',
    '--queue',
    '--cancel',
    '--until-empty',
    '--report-every',
    '--cache-dir',
    '--cache-store',
    '--cache-size',
    '--models-file',
    '--hub',
    '--no-page',
    '--model',
    '--prompt',
    '--file',
    '--image',
    '--no-mmproj',
    '--tokens',
    '--chat',
    '--no-chat',
    '--system',
    '--escape',
    '--json',
    '--quiet',
  ],
  ...['--display-prompt', '--summary', '--load-session', '--save-session', '--session-key-file'],
  ...['--help', '--help-all', '--reasoning-effort', '--max-reasoning-tokens'],
  ...[
    '--mcp',
    '--mcp-allow',
    '--mcp-timeout',
    '--mcp-header',
    '--mcp-env',
    '--tool-choice',
    '--no-markdown',
    '--no-history',
  ],
  ...['--prefill', '--decode', '--lora-scaled', '--pooling'],
];

/** Names of llama.cpp, and flags of npm, Docker and llama-perplexity, that the guides mention. */
const foreignFlags = [
  '--silent',
  '--build-arg',
  '--kl-divergence',
  '--ctx-size',
  '--ctx',
  '--n-predict',
  '--temp',
  '--repeat-penalty',
  '--repeat-last-n',
  '--alias',
  '--embedding-alias',
  '--parallel',
];

const pathsOf = (names: Names, prefix = ''): string[] =>
  Object.entries(names).flatMap(([name, inner]) => [
    prefix + name,
    ...(inner === true ? [] : pathsOf(inner, `${prefix}${name}.`)),
  ]);
const isFlagged = (path: string): boolean => !programOnly.includes(path);
const enginePaths = pathsOf({ ...loadNames, ...generateNames }).filter(isFlagged);
const serverPaths = pathsOf(serverNames).filter(isFlagged);

async function flagsOf(command: readonly string[]): Promise<string[]> {
  const help = (flag: string): Promise<CliRun> => runCli(createFakeEngine().api, [...command, flag]);
  const all = await help('--help-all');
  const { stdout } = all.code === 0 ? all : await help('--help');
  return [...stdout.matchAll(/^  (?:-\w, )?(--[a-z-]+)/gm)].map(([, name = '']) => name);
}

test('every option has the flag that its name gives, unless only a program can set it', async () => {
  const flags = new Set([...(await flagsOf(['run'])), ...(await flagsOf(['serve']))]);
  const missing = [...enginePaths, ...serverPaths].filter((path) => path !== 'sparsity' && !flags.has(flagOf(path)));
  expect(missing).toEqual([]);
  expect(programOnly.filter((path) => flags.has(flagOf(path)) && path !== 'models' && path !== 'lora')).toEqual([]);
});

test('every flag has the name of an option, unless it concerns only the command', async () => {
  const named = new Set([...enginePaths, ...serverPaths].map(flagOf));
  const flags = [...(await flagsOf(['run'])), ...(await flagsOf(['chat'])), ...(await flagsOf(['serve']))];
  expect(flags.filter((name) => !named.has(name) && !commandOnly.includes(name))).toEqual([]);
});

test('messages name the flag of every option that has one', () => {
  const translated = new Set(optionsWithFlags);
  expect(enginePaths.filter((path) => path !== 'sparsity' && !translated.has(path))).toEqual([]);
});

describe('guides', () => {
  const folder = new URL('../../../docs/guides/', import.meta.url);
  const guides = readdirSync(folder).map((file) => [file, readFileSync(new URL(file, folder), 'utf8')] as const);

  test('the guide of the command line shows every flag of run, chat and serve', async () => {
    const text = readFileSync(new URL('cli.md', folder), 'utf8');
    const flags = [...(await flagsOf(['run'])), ...(await flagsOf(['chat'])), ...(await flagsOf(['serve']))];
    expect([...new Set(flags)].filter((name) => !text.includes(`\`${name}`) && !text.includes(`, ${name}`))).toEqual(
      [],
    );
  });

  test.each(guides)('%s names existing flags', async (_file, text) => {
    const commands = [
      'run',
      'chat',
      'serve',
      'batch',
      'worker',
      'route',
      'tokenize',
      'detokenize',
      'logits',
      'inspect',
      'convert',
      'embed',
      'rerank',
    ];
    const all = [...commands, 'calibrate', 'eval', 'tune', 'explain-attention'].map((name) => [name]);
    const flags = new Set(
      (await Promise.all([...all, ['eval', 'sts'], ['eval', 'rerank'], ['eval', 'h2o']].map(flagsOf))).flat(),
    );
    const code = text
      .split('\n')
      .map((line) => (/\bwinnow [a-z]/.test(line) ? line : line.replaceAll(/(?<!`)--/g, '')));
    const named = [...code.join('\n').matchAll(/(?<=[`\s(])--[a-z][a-z-]+/g)].map(([name]) => name);
    expect([...new Set(named)].filter((name) => !flags.has(name) && !foreignFlags.includes(name))).toEqual([]);
  });
});
