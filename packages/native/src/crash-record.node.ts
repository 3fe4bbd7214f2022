/**
 * Records processes that ended inside native kernels. A process that enters kernels for the first time writes a file to the folder
 * of verdicts, and removes it when they return. A file whose process is gone is therefore evidence of a crash, and the next process
 * that finds it counts it as one. Nothing here throws: in a folder that cannot be written, nothing is recorded.
 */
import { readdirSync, readFileSync, renameSync, rmSync, writeFileSync, mkdirSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { threadId } from 'node:worker_threads';

const [inUseEnding, deathEnding] = ['.in-use', '.death'];

/** Identifies a process; `start` distinguishes it from later ones with the same id, if the system reports start times. */
interface ProcessIdentity {
  readonly machine: string;
  readonly pid: number;
  readonly start: string;
}

/** Records by the prefix of their files: several backends of a process share one. */
const records = new Map<string, CrashRecord>();

/** The record of an addon whose verdict is `key` in `folder`. */
export function crashRecord(folder: string, key: string): CrashRecord {
  const prefix = join(folder, key);
  const record = records.get(prefix) ?? new CrashRecord(folder, key);
  if (records.size === 0) process.once('exit', endAll);
  records.set(prefix, record);
  return record;
}

function endAll(): void {
  for (const record of records.values()) record.end();
}

export class CrashRecord {
  readonly #folder: string;
  readonly #key: string;
  /** Path of the file that exists while this thread runs kernels for the first time. */
  readonly #inUse: string;
  #numInside = 0;
  #hasReturned = false;

  constructor(folder: string, key: string) {
    this.#folder = folder;
    this.#key = key;
    this.#inUse = join(folder, `${key}.${process.pid}-${threadId}${inUseEnding}`);
  }

  /** The number of processes that ended inside the kernels since a process that used them last ended properly. */
  countDeaths(): number {
    const files = this.#files();
    for (const file of files.filter((name) => name.endsWith(inUseEnding))) this.#keepIfGone(join(this.#folder, file));
    return this.#files().filter((name) => name.endsWith(deathEnding)).length;
  }

  /** Files to delete so that the addon is tried again. */
  get deathFiles(): string {
    return join(this.#folder, `${this.#key}.*${deathEnding}`);
  }

  /**
   * Records that native code runs, which may end the process; call the result when it has returned.
   * @param isComputing whether it runs kernels, whose return proves that the addon works
   */
  enter(isComputing: boolean): () => void {
    if (this.#numInside++ === 0) attempt(() => this.#write());
    let isInside = true;
    return () => {
      if (!isInside) return;
      isInside = false;
      this.#hasReturned ||= isComputing;
      if (--this.#numInside === 0) attempt(() => rmSync(this.#inUse, { force: true }));
    };
  }

  /** Called at the regular end of a process: removes its file, and if kernels have returned, forgets earlier crashes. */
  end(): void {
    if (this.#numInside > 0) attempt(() => rmSync(this.#inUse, { force: true }));
    if (!this.#hasReturned || this.#numInside > 0) return;
    for (const file of this.#files().filter((name) => name.endsWith(deathEnding))) {
      attempt(() => rmSync(join(this.#folder, file), { force: true }));
    }
  }

  #write(): void {
    mkdirSync(this.#folder, { recursive: true });
    writeFileSync(this.#inUse, JSON.stringify(identityOf(process.pid)));
  }

  #files(): string[] {
    return attempt(() => readdirSync(this.#folder).filter((name) => name.startsWith(`${this.#key}.`))) ?? [];
  }

  /** Counts a crash at most once: only one of several concurrent processes succeeds in renaming the file. */
  #keepIfGone(path: string): void {
    attempt(() => {
      const { machine, pid, start } = JSON.parse(readFileSync(path, 'utf8')) as ProcessIdentity;
      const present = identityOf(pid);
      // files of other machines that share the cache folder, and of earlier boots of this one, prove nothing
      if (machine !== present.machine || (isAlive(pid) && start === present.start)) return;
      renameSync(path, `${path.slice(0, -inUseEnding.length)}-${start}${deathEnding}`);
    });
  }
}

function identityOf(pid: number): ProcessIdentity {
  const boot = attempt(() => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()) ?? '';
  // the second field is a name in parentheses, which may contain spaces; the start time is the 22nd
  const stat = attempt(() => readFileSync(`/proc/${pid}/stat`, 'latin1')) ?? '';
  const start = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? '';
  return { machine: `${hostname()} ${boot}`, pid, start };
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

function attempt<T>(action: () => T): T | undefined {
  try {
    return action();
  } catch {
    return undefined;
  }
}
