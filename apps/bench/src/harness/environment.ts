/** What a result depends on besides the code: the machine and what else it is doing. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { arch, cpus, loadavg, platform, release, totalmem } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';

export interface Environment {
  readonly kind: 'env';
  readonly cpu: string;
  /** Instruction sets that matter here, as the system names them. */
  readonly cpuFlags: readonly string[];
  readonly cores: number;
  readonly memoryGiB: number;
  readonly system: string;
  readonly node: string;
  readonly v8: string;
  /** Commit of the working tree, with `+` when files differ from it. */
  readonly commit: string;
  readonly date: string;
  readonly loadAverage: number;
  /** Cores that other programs kept busy in the second before the start. */
  readonly busyCores: number;
  /** Measured although the machine was busy. */
  readonly isNoisy: boolean;
  readonly threads: readonly number[];
  readonly backend: string;
}

const interestingFlags =
  /^(sse4_2|avx|avx2|fma|f16c|avx_vnni|avx512\w*|amx_\w+|neon|asimd\w*|fphp|i8mm|sve\w*|bf16|dotprod)$/;

export function cpuFlags(): string[] {
  let text: string;
  try {
    text = readFileSync('/proc/cpuinfo', 'utf8');
  } catch {
    return []; // not Linux
  }
  const [, flags = ''] = /^(?:flags|Features)\s*:(.*)$/m.exec(text) ?? [];
  return flags
    .trim()
    .split(/\s+/)
    .filter((flag) => interestingFlags.test(flag));
}

/** Cores in use by all programs, over `durationMs`. */
export async function measureBusyCores(durationMs: number): Promise<number> {
  const meter = startLoadMeter();
  await sleep(durationMs);
  return meter.otherCores();
}

/** Watches what other programs take while this one measures. */
export interface LoadMeter {
  /** Adds processor time of our own that another process used for us. */
  addOwnMs(ms: number): void;
  /** Cores that other programs kept busy since the start, on average. */
  otherCores(): number;
}

export function startLoadMeter(): LoadMeter {
  const before = cpuTimes();
  const ownBefore = process.cpuUsage();
  let ownMs = 0;
  return {
    addOwnMs(ms) {
      ownMs += ms;
    },
    otherCores() {
      const after = cpuTimes();
      const { user, system } = process.cpuUsage(ownBefore);
      const busyMs = after.busy - before.busy - (user + system) / 1000 - ownMs;
      const totalMs = after.total - before.total;
      return totalMs > 0 ? (Math.max(0, busyMs) / totalMs) * cpus().length : 0;
    },
  };
}

/** Milliseconds of all cores since the system started. */
function cpuTimes(): { busy: number; total: number } {
  let busy = 0;
  let total = 0;
  for (const { times } of cpus()) {
    const all = times.user + times.nice + times.sys + times.irq + times.idle;
    total += all;
    busy += all - times.idle;
  }
  return { busy, total };
}

/** Where the sources lie: `commit` is asked of git there. */
export function commitOf(folder: string): string {
  const git = (...gitArguments: string[]): string =>
    execFileSync('git', gitArguments, { cwd: folder, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
  try {
    return git('rev-parse', '--short=12', 'HEAD') + (git('status', '--porcelain') === '' ? '' : '+');
  } catch {
    return 'unknown';
  }
}

export interface EnvironmentOptions {
  readonly threads: readonly number[];
  readonly backend: string;
  readonly busyCores: number;
  readonly isNoisy: boolean;
  readonly sourceFolder: string;
}

export function describeEnvironment(options: EnvironmentOptions): Environment {
  const { threads, backend, busyCores, isNoisy, sourceFolder } = options;
  return {
    kind: 'env',
    cpu: cpus()[0]?.model ?? 'unknown',
    cpuFlags: cpuFlags(),
    cores: cpus().length,
    memoryGiB: round(totalmem() / 2 ** 30),
    system: `${platform()} ${release()} ${arch()}`,
    node: process.version,
    v8: process.versions.v8,
    commit: commitOf(sourceFolder),
    date: new Date().toISOString(),
    loadAverage: round(loadavg()[0] ?? 0),
    busyCores: round(busyCores),
    isNoisy,
    threads,
    backend,
  };
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}
