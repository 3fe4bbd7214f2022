/**
 * Tries an addon in a child process before this process loads it, because an addon can crash its process: by an instruction
 * that the machine lacks, or an incompatible C library. The verdict is cached in the user's cache folder, by the content of
 * the addon, the processor and the version of Node.
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { cpus, homedir } from 'node:os';
import { join } from 'node:path';
import { crashRecord, type CrashRecord } from './crash-record.node.js';

export interface Verdict {
  /** Levels of this machine whose instructions work, best first. */
  readonly levels: readonly string[];
  /** Why the addon must not be loaded. */
  readonly refusal?: string;
}

export interface Trial extends Verdict {
  /** Record of the processes that ended inside the addon's kernels; undefined if the addon cannot be read. */
  readonly crashes?: CrashRecord;
}

export interface ProbeOptions {
  /** Folder for verdicts. Default: `winnow/native` in the user's cache folder. */
  readonly cacheFolder?: string;
  /** Milliseconds after which a trial counts as hanging. Default 20,000; a trial takes about 50. */
  readonly timeout?: number;
}

const timeoutMs = 20_000;

/**
 * Number of processes that end inside the kernels after which the addon is rejected. A single one may have been killed by the user,
 * which cannot be distinguished from a crash.
 */
const maxDeaths = 2;

/** What the child runs: the addon's own tests, and an attachment to a shared memory. */
const childProgram = `
const addon = require(process.argv[1]);
const memory = new WebAssembly.Memory({ initial: 1, maximum: 2, shared: true });
const levels = addon.levels().filter((level) => addon.selfTest(level) && addon.attach(new Uint8Array(memory.buffer), level));
process.stdout.write(JSON.stringify(levels));
`;

/**
 * The verdict about an addon: the cached one, or that of a new trial; negative if processes ended inside its kernels since.
 * Never throws.
 */
export async function probe(
  path: string,
  { cacheFolder = defaultCacheFolder(), timeout = timeoutMs }: ProbeOptions = {},
): Promise<Trial> {
  let content: Uint8Array;
  try {
    content = await readFile(path);
  } catch (error) {
    return { levels: [], refusal: `the addon cannot be read: ${messageOf(error)}` };
  }
  const key = keyOf(content);
  const crashes = crashRecord(cacheFolder, key);
  const numDeaths = crashes.countDeaths();
  if (numDeaths >= maxDeaths) {
    const refusal = `${numDeaths} processes ended inside its kernels; delete ${crashes.deathFiles} to try it again`;
    return { levels: [], refusal };
  }
  const file = join(cacheFolder, `${key}.json`);
  const known = await readVerdict(file);
  if (known !== undefined) return { ...known, crashes };
  const { isFinal, ...verdict } = await tryInChild(path, timeout);
  if (isFinal) await writeVerdict(cacheFolder, file, verdict);
  return { ...verdict, crashes };
}

function keyOf(content: Uint8Array): string {
  const [processor] = cpus();
  const hash = createHash('sha256').update(content);
  hash.update(`\0${process.platform} ${process.arch} ${process.version}\0${processor?.model ?? ''}`);
  return hash.digest('hex').slice(0, 32);
}

function defaultCacheFolder(): string {
  const { XDG_CACHE_HOME, LOCALAPPDATA } = process.env;
  const folder =
    (process.platform === 'win32' ? LOCALAPPDATA : XDG_CACHE_HOME) ||
    join(homedir(), process.platform === 'darwin' ? 'Library/Caches' : '.cache');
  return join(folder, 'winnow', 'native');
}

async function readVerdict(file: string): Promise<Verdict | undefined> {
  try {
    const { levels, refusal } = JSON.parse(await readFile(file, 'utf8')) as Partial<Verdict>;
    if (!Array.isArray(levels) || !levels.every((level) => typeof level === 'string')) return undefined;
    return { levels, ...(typeof refusal === 'string' ? { refusal } : {}) };
  } catch {
    return undefined;
  }
}

/** Writes the verdict. A folder that cannot be written only costs a trial at every start. */
async function writeVerdict(folder: string, file: string, verdict: Verdict): Promise<void> {
  const temporary = `${file}.${process.pid}`;
  try {
    await mkdir(folder, { recursive: true });
    await writeFile(temporary, JSON.stringify(verdict));
    await rename(temporary, file);
  } catch {
    // see above
  }
}

/** Runs a trial. If the machine rather than the addon ended it, its verdict is not final. */
function tryInChild(path: string, timeout: number): Promise<Verdict & { readonly isFinal: boolean }> {
  return new Promise((resolve) => {
    const env = { ...process.env, NODE_OPTIONS: '' };
    const options = { timeout, killSignal: 'SIGKILL', env, windowsHide: true } as const;
    const refuse = (refusal: string, isFinal: boolean): void => resolve({ levels: [], refusal, isFinal });
    try {
      execFile(process.execPath, ['-e', childProgram, path], options, (error, stdout, stderr) => {
        const levels = levelsIn(stdout);
        if (error === null && levels !== undefined) resolve({ levels, isFinal: true });
        else if (error === null) refuse('its trial ended early', true);
        else if (error.killed === true) refuse(`its trial hung for ${timeout / 1000} s`, true);
        else if (typeof error.code === 'string') refuse(`its trial could not start: ${error.message}`, false);
        else
          refuse(
            `its trial ended with ${error.signal ?? `code ${error.code}`}${reasonIn(stderr)}`,
            !isOutside(error.signal),
          );
      });
    } catch (error) {
      refuse(`its trial could not start: ${messageOf(error)}`, false);
    }
  });
}

/** Whether a signal comes from outside, for example from an operating system that runs out of memory. */
function isOutside(signal: string | undefined): boolean {
  return signal === 'SIGKILL' || signal === 'SIGTERM' || signal === 'SIGINT' || signal === 'SIGHUP';
}

/** The levels that a child has printed; undefined if it ended before. */
function levelsIn(stdout: string): string[] | undefined {
  return stdout === '' ? undefined : (JSON.parse(stdout) as string[]);
}

/** The error message that a child has printed. */
function reasonIn(stderr: string): string {
  const [line] = stderr.split('\n').filter((text) => /^\w*Error: /.test(text));
  return line === undefined ? '' : `: ${line}`;
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
