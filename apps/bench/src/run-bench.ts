/** Runs suites: the machine's probes, the environment, the report. Process state is passed in as a parameter. */
import { cpus, totalmem } from 'node:os';
import { fileURLToPath } from 'node:url';
import type { NativeKernels } from '@winnow/native';
import { choiceOfEnvironment, openNative } from '@winnow/native/node';
import type { Backend } from '@winnow/ops';
import { createBackend } from './harness/backends.js';
import { describeEnvironment, LoadMeter } from './harness/environment.js';
import type { Figure } from './harness/figure.js';
import { optionsHelp, parseCommandLine, UsageError, type BenchOptions } from './harness/options.js';
import { createPlotBook } from './harness/plots.js';
import { jsonReport, TextReport } from './harness/report.js';
import type { Suite, SuiteContext } from './harness/suite.js';
import type { Run } from './results/results.js';
import { writeReport } from './results/write-report.js';
import { createMachine } from './roofline/machine.js';
import { agreement } from './suites/agreement.js';
import { attention } from './suites/attention.js';
import { decode } from './suites/decode.js';
import { eventLoop } from './suites/event-loop.js';
import { ffn } from './suites/ffn/blocks.js';
import { ffnProduct } from './suites/ffn/product.js';
import { ffnTokens } from './suites/ffn/tokens.js';
import { fusions } from './suites/fusions.js';
import { gemm } from './suites/gemm.js';
import { grammar } from './suites/grammar.js';
import { gemv } from './suites/gemv.js';
import { kv } from './suites/kv.js';
import { load } from './suites/load.js';
import { memories } from './suites/memories.js';
import { overhead } from './suites/overhead.js';
import { prefill } from './suites/prefill.js';
import { profile } from './suites/profile.js';
import { roofline } from './suites/roofline.js';
import { experts } from './suites/experts.js';
import { sparseAttention } from './suites/sparse-attention.js';
import { speculation } from './suites/speculation/speculation.js';

export const suites: readonly Suite[] = [
  roofline,
  overhead,
  gemm,
  gemv,
  experts,
  attention,
  sparseAttention,
  ffn,
  ffnProduct,
  ffnTokens,
  fusions,
  prefill,
  profile,
  decode,
  speculation,
  load,
  kv,
  grammar,
  eventLoop,
  memories,
  agreement,
];

/** Aliases of suites. */
const groups: Readonly<Record<string, readonly Suite[]>> = {
  attention: [attention, sparseAttention],
  'dense-attention': [attention],
};

/** The interface of a run to its process. */
export interface BenchHost {
  out(text: string): void;
  progress(text: string): void;
  /** Number of cores that other programs keep busy, measured for this long. */
  busyCores(durationMs: number): Promise<number>;
}

/** @returns the exit code: 0, 1 for a failure, 2 for a wrong command line, 3 for a machine that is too busy */
export async function runBench(programArguments: readonly string[], host: BenchHost): Promise<number> {
  try {
    const { suites: names, help, options } = parseCommandLine(programArguments);
    if (help || names.length === 0) {
      host.out(helpText());
      return help ? 0 : 2;
    }
    if (names.length === 1 && names[0] === 'paths') {
      host.out(`models ${options.modelsFolder}\npeers  ${options.peerFolder}\n`);
      return 0;
    }
    return await runSuites(selectSuites(names), options, host, commandOf(programArguments));
  } catch (error) {
    if (error instanceof UsageError) {
      host.progress(`bench: ${error.message}\n`);
      return 2;
    }
    host.progress(`bench: ${error instanceof Error ? error.message : String(error)}\n`);
    return 1;
  }
}

function selectSuites(names: readonly string[]): readonly Suite[] {
  if (names.includes('all')) return suites.filter((suite) => suite !== agreement);
  const selected = names.flatMap((name) => {
    const named = groups[name] ?? suites.filter((candidate) => candidate.name === name);
    if (named.length > 0) return named;
    const known = [...suites.map((suite) => suite.name), 'dense-attention', 'all'];
    throw new UsageError(`expected suites of ${known.join(', ')}, got ${name}`);
  });
  return [...new Set(selected)];
}

/** The command as typed, quoted for a shell. */
function commandOf(programArguments: readonly string[]): string {
  const words = programArguments.map((word) =>
    /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`,
  );
  return ['pnpm bench', ...words].join(' ');
}

async function runSuites(
  selected: readonly Suite[],
  options: BenchOptions,
  host: BenchHost,
  command: string,
): Promise<number> {
  const busyCores = await host.busyCores(options.quick ? 200 : 1000);
  const isNoisy = busyCores > options.loadLimit;
  if (isNoisy && !options.force) {
    const found = `other programs keep ${busyCores.toFixed(2)} cores busy`;
    host.progress(`bench: ${found}, the limit is ${options.loadLimit}; wait, or measure noise with --force\n`);
    return 3;
  }
  const printed = options.json ? jsonReport(host.out) : new TextReport(host.out);
  const figures: Figure[] = [];
  const add = (figure: Figure): void => {
    figures.push(figure);
    printed.figure(figure);
  };
  const sourceFolder = fileURLToPath(new URL('..', import.meta.url));
  const { threads } = options;
  const native = options.native ? await nativeKernels() : undefined;
  const backend = native === undefined ? options.backend : `${options.backend}+${native.level}`;
  const environment = describeEnvironment({ threads, backend, busyCores, isNoisy, sourceFolder });
  printed.environment(environment);
  const meter = new LoadMeter();
  const plots = createPlotBook();
  const say = (text: string): void => host.progress(`${text}\n`);
  await measureAll(selected, options, { addOwnMs: (ms) => meter.addOwnMs(ms), say, plot: plots.add }, add, native);
  if (options.plotsFolder !== undefined) for (const path of await plots.write(options.plotsFolder)) say(path);
  const others = meter.otherCores();
  add(othersFigure(others));
  if (options.reportFolder !== undefined) {
    const run: Run = { command, environment, figures, plots: plots.plots() };
    for (const path of await writeReport(options.reportFolder, { runs: [run] })) say(path);
  }
  if (others > options.loadLimit) {
    say(`bench: other programs kept ${others.toFixed(2)} cores busy: these figures are not evidence`);
  }
  return 0;
}

/** The kernels that `WINNOW_NATIVE` names, else the best. @throws {UsageError} where there are none */
async function nativeKernels(): Promise<NativeKernels> {
  const choice = choiceOfEnvironment();
  const { kernels, refusal } = await openNative(typeof choice === 'string' && choice !== 'auto' ? choice : true);
  if (kernels === undefined) throw new UsageError(`--native: ${refusal}`);
  return kernels;
}

/** One suite after the other, on machine and backends that are freed at the end. */
async function measureAll(
  selected: readonly Suite[],
  options: BenchOptions,
  rest: Pick<SuiteContext, 'addOwnMs' | 'say' | 'plot'>,
  add: (figure: Figure) => void,
  native: NativeKernels | undefined,
): Promise<void> {
  const machine = createMachine(
    options.quick
      ? { memoryBytes: 16 * 2 ** 20, opsPerRun: 4e6, native }
      : { memoryBytes: Math.min(2 ** 30, totalmem() / 8), opsPerRun: 4e8, native },
  );
  const backends: Backend[] = [];
  const context: SuiteContext = {
    options,
    machine,
    nativeLevel: native?.level,
    async createBackend(numThreads, place, isNative = options.native) {
      const chosen = isNative === true && native !== undefined ? native.level : false;
      const created = await createBackend(options.backend, numThreads, place, chosen);
      backends.push(created);
      return created;
    },
    ...rest,
  };
  try {
    for (const suite of selected) for await (const figure of suite.run(context)) add(figure);
  } finally {
    // suites dispose of their backends; after a failure some remain, whose workers would keep the process alive
    for (const left of backends) await left.dispose().catch(() => undefined);
    await machine.dispose();
  }
}

function othersFigure(others: number): Figure {
  const numCores = cpus().length;
  return {
    suite: 'environment',
    case: 'other programs',
    value: others,
    best: others,
    unit: 'cores',
    ratio: others / numCores,
    ratioOf: `${numCores} cores`,
  };
}

function helpText(): string {
  const lines = suites.map(({ name, summary }) => `  ${name.padEnd(16)} ${summary}`);
  return [
    'pnpm bench <suite> ... [options]',
    '',
    'suites',
    ...lines,
    '                   (attention: with sparse-attention; dense-attention: without it)',
    '  all              all of these except agreement',
    '  paths            prints the folders of synthetic models and peers',
    '',
    optionsHelp,
    '',
  ].join('\n');
}
