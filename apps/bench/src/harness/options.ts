/** Options of the command line, with defaults that depend on `--quick`. */
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { isDType, type DType } from '@winnow/tensor';
import { backendNames, hasThreads, type BackendName } from './backends.js';

/** Programs to measure against; wllama runs in Chromium, as does Winnow in a page of the same browser. */
const peerNames = ['node-llama-cpp', 'wllama'] as const;
export type PeerName = (typeof peerNames)[number];

export interface BenchOptions {
  readonly backend: BackendName;
  /** Thread counts to measure, in ascending order. */
  readonly threads: readonly number[];
  /** Whether to measure native kernels, too: next to those of WebAssembly if a suite measures kernels. */
  readonly native: boolean;
  /** Whether whole models are measured with WebAssembly kernels, too, when native kernels are measured. */
  readonly wasm: boolean;
  /** Whether to measure Winnow also while it counts the keys that attention visits. */
  readonly visitedKeys: boolean;
  readonly quick: boolean;
  readonly json: boolean;
  readonly force: boolean;
  /** Folder for plots; none are drawn without it. */
  readonly plotsFolder: string | undefined;
  /** Folder for the report; none is written without it. */
  readonly reportFolder: string | undefined;
  /** Maximum number of cores kept busy by other programs. */
  readonly loadLimit: number;
  readonly rounds: number | undefined;
  readonly dtypes: readonly DType[] | undefined;
  /** `[outputs, inputs]` of matrices. */
  readonly shapes: readonly (readonly [number, number])[] | undefined;
  readonly models: readonly string[] | undefined;
  readonly contexts: readonly number[] | undefined;
  readonly tokens: readonly number[] | undefined;
  readonly kvDType: DType;
  /** Attention policy of whole models; dense without it. */
  readonly attention: string | undefined;
  /** Policies measured in turns with it, each under its own name. */
  readonly otherPolicies: readonly string[];
  readonly batchSize: number;
  readonly peer: PeerName | undefined;
  readonly peerFlash: boolean;
  /** A benchmark program of llama.cpp or a fork. */
  readonly peerBinary: string | undefined;
  /** Folder of a test suite of JSON schemas. */
  readonly suiteFolder: string | undefined;
  /** Folder of synthetic models. */
  readonly modelsFolder: string;
  /** Folder of installed peers. */
  readonly peerFolder: string;
}

/** An invalid command line. */
export class UsageError extends Error {}

const flags = {
  backend: { type: 'string' },
  threads: { type: 'string' },
  native: { type: 'boolean' },
  wasm: { type: 'boolean' },
  'visited-keys': { type: 'boolean' },
  quick: { type: 'boolean' },
  json: { type: 'boolean' },
  force: { type: 'boolean' },
  plots: { type: 'string' },
  report: { type: 'string' },
  'load-limit': { type: 'string' },
  rounds: { type: 'string' },
  dtypes: { type: 'string' },
  shapes: { type: 'string' },
  models: { type: 'string' },
  contexts: { type: 'string' },
  tokens: { type: 'string' },
  kv: { type: 'string' },
  attention: { type: 'string' },
  batch: { type: 'string' },
  peer: { type: 'string' },
  'peer-flash': { type: 'boolean' },
  'peer-binary': { type: 'string' },
  suite: { type: 'string' },
  'models-dir': { type: 'string' },
  'peer-dir': { type: 'string' },
  help: { type: 'boolean', short: 'h' },
} as const;

export const optionsHelp = `options
  --backend wasm|reference   backend to measure
  --threads 1,2              thread counts (default: 1 and all cores; end to end: the largest)
  --native                   use native kernels; gemm, gemv, experts, attention, sparse-attention and ffn
                             also measure those of WebAssembly; WINNOW_NATIVE=avx2 selects a level
  --wasm                     prefill, decode, profile: with --native, also measure the kernels of WebAssembly, for each policy
  --visited-keys             prefill, decode: also measure Winnow while it counts visited keys, as for the live view of the page
  --rounds <n>               measured runs of each contender
  --dtypes q8_0,q4_K,...     weights of gemm, gemv, prefill, decode, profile, load
  --shapes 2048x5632,...     outputs x inputs of gemm and gemv
  --tokens 128,512,...       rows of gemm, prompt lengths of prefill and profile, long contexts of kv (200000, 1048576)
  --contexts 128,8192,...    keys of attention, context of decode, and of profile, which then generates tokens instead of prompts
  --models tinyllama-1.1b,.. model shapes of prefill, decode, profile, load, agreement; tinyllama-1.1b/4 has 4 of the layers
  --kv f32|f16|q8_0          dtype of the cache (default f32)
  --attention <policies>     attention policy of prefill, decode and profile, such as decode=page-topk:budget=32 (default dense);
                             'A|B' measures A and B alternately
  --batch <n>                tokens per step of prefill and profile (default 64)
  --peer node-llama-cpp|wllama  also measure that package, alternately; installs it into the peer folder if it is missing.
                             wllama runs in headless Chromium, and so does Winnow then (prefill and decode)
  --peer-flash               enable flash attention of the peer
  --peer-binary <path>       prefill, decode: also measure a llama-bench or llama-sweep-bench of llama.cpp or a fork
  --suite <folder>           schemas for the grammar suite: JSON-Schema-Test-Suite or JSONSchemaBench
  --models-dir, --peer-dir   folders for synthetic models and for peers (pnpm bench paths shows the defaults)
  --quick                    small cases and few runs, as a smoke test
  --json                     one JSON object per line, the environment first
  --plots <folder>           sparse-attention: plots over the length, as SVG
  --report <folder>          writes report.json, every figure as measured, and report.html, its tables and plots
  --load-limit <cores>       do not start while other programs keep more cores busy (default 0.3)
  --force                    measure on a busy machine; results are marked as noisy`;

export interface CommandLine {
  readonly suites: readonly string[];
  readonly help: boolean;
  readonly options: BenchOptions;
}

/** @throws {UsageError} */
export function parseCommandLine(programArguments: readonly string[]): CommandLine {
  const { values, positionals } = parsed(programArguments);
  const backend = oneOf('backend', backendNames, values.backend ?? 'wasm');
  const quick = values.quick ?? false;
  const allThreads = hasThreads(backend) ? [...new Set([1, availableParallelism()])] : [1];
  const base = join(tmpdir(), 'winnow-bench');
  const [attention, ...otherPolicies] = policies(values.attention, values.peer);
  return {
    suites: positionals,
    help: values.help ?? false,
    options: {
      backend,
      threads: list('threads', values.threads, count)?.toSorted((a, b) => a - b) ?? allThreads,
      native: values.native ?? false,
      wasm: values.wasm ?? false,
      visitedKeys: values['visited-keys'] ?? false,
      quick,
      json: values.json ?? false,
      force: values.force ?? false,
      plotsFolder: values.plots,
      reportFolder: values.report,
      loadLimit: values['load-limit'] === undefined ? 0.3 : positive('load-limit', values['load-limit']),
      rounds: values.rounds === undefined ? undefined : count('rounds', values.rounds),
      dtypes: list('dtypes', values.dtypes, dtype),
      shapes: list('shapes', values.shapes, matrixShape),
      models: list('models', values.models, (_, value) => value),
      contexts: list('contexts', values.contexts, count),
      tokens: list('tokens', values.tokens, count),
      kvDType: values.kv === undefined ? 'f32' : dtype('kv', values.kv),
      attention,
      otherPolicies,
      batchSize: values.batch === undefined ? 64 : count('batch', values.batch),
      peer: values.peer === undefined ? undefined : oneOf('peer', peerNames, values.peer),
      peerFlash: values['peer-flash'] ?? false,
      peerBinary: values['peer-binary'],
      suiteFolder: values.suite,
      modelsFolder: values['models-dir'] ?? join(base, 'models'),
      peerFolder: values['peer-dir'] ?? join(base, 'peers'),
    },
  };
}

function parsed(programArguments: readonly string[]) {
  try {
    return parseArgs({ args: [...programArguments], options: flags, allowPositionals: true, strict: true });
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

type Parse<T> = (name: string, value: string) => T;

function list<T>(name: string, text: string | undefined, parse: Parse<T>): T[] | undefined {
  return text?.split(',').map((value) => parse(name, value.trim()));
}

/** Policies, separated by `|`. */
function policies(text: string | undefined, peer: string | undefined): readonly string[] {
  if (text === undefined) return [];
  const found = text.split('|').map((policy) => policy.trim());
  if (peer === 'wllama' && found.length > 1) throw new UsageError('--attention: expected one policy in a browser');
  if (new Set(found).size === found.length && !found.includes('')) return found;
  throw new UsageError(`--attention: expected policies such as dense|streaming, each once, got ${text}`);
}

function count(name: string, text: string): number {
  const value = Number(text);
  if (Number.isSafeInteger(value) && value > 0) return value;
  throw new UsageError(`--${name}: expected a positive integer, got ${text}`);
}

function positive(name: string, text: string): number {
  const value = Number(text);
  if (Number.isFinite(value) && value > 0) return value;
  throw new UsageError(`--${name}: expected a positive number, got ${text}`);
}

function dtype(name: string, text: string): DType {
  if (isDType(text)) return text;
  throw new UsageError(`--${name}: expected names such as f16, q8_0 or q4_K, got ${text}`);
}

function matrixShape(name: string, text: string): readonly [number, number] {
  const [outputs = '', inputs, ...rest] = text.split('x');
  if (inputs !== undefined && rest.length === 0) return [count(name, outputs), count(name, inputs)];
  throw new UsageError(`--${name}: expected outputs x inputs such as 2048x5632, got ${text}`);
}

function oneOf<T extends string>(name: string, known: readonly T[], text: string): T {
  const found = known.find((value) => value === text);
  if (found !== undefined) return found;
  throw new UsageError(`--${name}: expected ${known.join(' | ')}, got ${text}`);
}
