/**
 * Benchmark programs of llama.cpp and its forks that the user has built: `llama-bench` and `llama-sweep-bench`. Each measurement is
 * a separate process that loads the model, warms up and times itself.
 */
import { execFile } from 'node:child_process';
import { basename } from 'node:path';
import { promisify } from 'node:util';
import { endedChildrenCpuMs } from './process-tree.js';
import type { SpeedPeer } from './peer.js';

interface BinarySettings {
  readonly modelPath: string;
  readonly threads: number;
  readonly flashAttention: boolean;
}

interface Output {
  readonly stdout: string;
  readonly stderr: string;
}

interface Measurement {
  readonly args: readonly string[];
  /** @throws {Error} when the output contains no time */
  timeMs(output: Output): number;
}

/** A kind of program: its arguments for each measurement, and the parser of its output. */
interface Dialect {
  prefill(length: number): Measurement;
  decode(context: number, count: number): Measurement;
}

/**
 * @param path path of a program whose name contains `llama-bench` or `llama-sweep-bench`
 * @throws {Error} when it cannot be started or is another program
 */
export async function openPeerBinary(path: string, settings: BinarySettings): Promise<SpeedPeer> {
  const name = basename(path).replace(/\.exe$/, '');
  const dialect = await dialectOf(path, name);
  const contexts: number[] = [];
  let cpuMs = 0;
  const run = async ({ args, timeMs }: Measurement): Promise<{ timeMs: number }> => {
    const beforeMs = endedChildrenCpuMs();
    const output = await outputOf(path, [...commonArguments(settings), ...args]);
    cpuMs += endedChildrenCpuMs() - beforeMs;
    return { timeMs: timeMs(output) };
  };
  return {
    name,
    get cpuMs() {
      return cpuMs;
    },
    async setContext(slot, tokens) {
      contexts[slot] = tokens.length;
    },
    prefill: (tokens) => run(dialect.prefill(tokens.length)),
    decode: (slot, _, count) => run(dialect.decode((contexts[slot] as number) + 1, count)),
    async dispose() {},
  };
}

async function dialectOf(path: string, name: string): Promise<Dialect> {
  if (name.includes('sweep-bench')) return sweepBench;
  if (!name.includes('llama-bench')) {
    throw new Error(`--peer-binary: expected a program named llama-bench or llama-sweep-bench, got ${path}`);
  }
  const { stdout, stderr } = await outputOf(path, ['--help']);
  if (`${stdout}${stderr}`.includes('--n-depth'))
    return llamaBench((context, count) => ['-p', '0', '-n', `${count}`, '-d', `${context}`]);
  return llamaBench((context, count) => ['-p', '0', '-n', '0', '-gp', `${context},${count}`]);
}

function commonArguments({ modelPath, threads, flashAttention }: BinarySettings): string[] {
  return ['-m', modelPath, '-t', `${threads}`, '-ngl', '0', ...(flashAttention ? ['-fa', '1'] : [])];
}

async function outputOf(path: string, args: readonly string[]): Promise<Output> {
  try {
    return await promisify(execFile)(path, args, { maxBuffer: 2 ** 26 });
  } catch (error) {
    const { stderr = '', message } = error as Error & { stderr?: string };
    const reason = (stderr.trim() || message).split('\n').slice(-3).join('\n');
    throw new Error(`--peer-binary: ${path} failed: ${reason}`, { cause: error });
  }
}

/** @param decodeArguments depend on the fork: a depth, or a prompt before the generation */
function llamaBench(decodeArguments: (context: number, count: number) => string[]): Dialect {
  const json = ['-r', '1', '-o', 'json'];
  const timeMs = ({ stdout }: Output): number => {
    const [result] = parsed(stdout) as readonly { readonly avg_ns?: number }[];
    return positive((result?.avg_ns ?? 0) / 1e6, stdout);
  };
  return {
    prefill: (length) => ({ args: [...json, '-p', `${length}`, '-n', '0'], timeMs }),
    decode: (context, count) => ({ args: [...json, ...decodeArguments(context, count)], timeMs }),
  };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`--peer-binary: expected JSON, got ${text.slice(0, 200)}`, { cause: error });
  }
}

/** One row of a sweep: times to process a batch and to generate tokens after `context` tokens. */
interface SweepRow {
  readonly numGenerated: number;
  readonly context: number;
  readonly promptMs: number;
  readonly generateMs: number;
}

/** Batches of a sweep: a divisor of `length`, at most 512 tokens. */
function sweepBatch(length: number): number {
  for (let batch = Math.min(512, length); ; batch--) if (length % batch === 0) return batch;
}

const sweepBench: Dialect = {
  prefill(length) {
    const batch = sweepBatch(length);
    const timeMs = ({ stdout, stderr }: Output): number => {
      // context sizes are rounded up, so a sweep may continue beyond the length
      const rows = sweepRows(stdout + stderr).filter(({ context }) => context < length);
      const isWhole = rows.length * batch === length;
      return positive(isWhole ? rows.reduce((sum, { promptMs }) => sum + promptMs, 0) : 0, stderr);
    };
    return { args: ['-c', `${length}`, '-b', `${batch}`, '-ub', `${batch}`], timeMs };
  },
  decode(context, count) {
    const batch = sweepBatch(context);
    const timeMs = ({ stdout, stderr }: Output): number => {
      const row = sweepRows(stdout + stderr).find((candidate) => candidate.context === context);
      return positive(row === undefined ? 0 : (row.generateMs / row.numGenerated) * count, stderr);
    };
    return { args: ['-c', `${context + batch}`, '-b', `${batch}`, '-ub', `${batch}`], timeMs };
  },
};

/** Rows of the table, which some versions print to standard error: PP, TG, N_KV, T_PP s, S_PP t/s, T_TG s, S_TG t/s. */
function sweepRows(text: string): SweepRow[] {
  const rows: SweepRow[] = [];
  for (const line of text.split('\n')) {
    const cells = line.split('|').slice(1, -1).map(Number);
    const [, numGenerated, context, promptSeconds, , generateSeconds] = cells;
    if (cells.length < 7 || cells.some(Number.isNaN)) continue;
    rows.push({
      numGenerated: numGenerated as number,
      context: context as number,
      promptMs: (promptSeconds as number) * 1000,
      generateMs: (generateSeconds as number) * 1000,
    });
  }
  return rows;
}

function positive(timeMs: number, text: string): number {
  if (timeMs > 0) return timeMs;
  throw new Error(`--peer-binary: expected the time of the measurement in the output, got ${text.slice(-200)}`);
}
