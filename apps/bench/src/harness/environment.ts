/** The environment of a result: the machine and its load. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { arch, cpus, loadavg, platform, release, totalmem } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';

export interface Environment {
  readonly kind: 'env';
  readonly cpu: string;
  /** Relevant instruction sets, as named by the system. */
  readonly cpuFlags: readonly string[];
  readonly cores: number;
  readonly memoryGiB: number;
  readonly system: string;
  readonly node: string;
  readonly v8: string;
  /** Commit of the working tree, with `+` for uncommitted changes. */
  readonly commit: string;
  readonly date: string;
  readonly loadAverage: number;
  /** Cores kept busy by other programs in the second before the start. */
  readonly busyCores: number;
  /** Whether the machine was busy during the measurement. */
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
  const meter = new LoadMeter();
  await sleep(durationMs);
  return meter.otherCores();
}

/** Monitors the load of other programs from its construction on. */
export class LoadMeter {
  readonly #before = cpuTimes();
  readonly #ownBefore = process.cpuUsage();
  #ownMs = 0;

  /** Adds CPU time that another process spent on our behalf. */
  addOwnMs(ms: number): void {
    this.#ownMs += ms;
  }

  /** Average number of cores kept busy by other programs since the start. */
  otherCores(): number {
    const after = cpuTimes();
    const { user, system } = process.cpuUsage(this.#ownBefore);
    const busyMs = after.busy - this.#before.busy - (user + system) / 1000 - this.#ownMs;
    const totalMs = after.total - this.#before.total;
    return totalMs > 0 ? (Math.max(0, busyMs) / totalMs) * cpus().length : 0;
  }
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

/** The commit of the working tree. @param folder folder of the sources */
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
