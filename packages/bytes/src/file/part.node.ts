/** Names of unfinished files, and the removal of those that killed processes left behind. */
import { createHash, randomUUID } from 'node:crypto';
import { readlinkSync } from 'node:fs';
import { lstat, readdir, rename, rm } from 'node:fs/promises';
import { hostname } from 'node:os';
import { basename, dirname, join } from 'node:path';

/** Age at which an unfinished file is stale, whichever process wrote it: no writer pauses for a day. */
const staleMs = 24 * 60 * 60 * 1000;

let ownPlace: string | undefined;

/**
 * The scope of process ids: another machine or container that shares the folder has its own. Determined at first use, since
 * Deno allows it only with `--allow-sys`.
 */
function processPlace(): string {
  ownPlace ??= createHash('sha256').update(`${hostname()} ${namespace()}`).digest('hex').slice(0, 8);
  return ownPlace;
}

function namespace(): string {
  try {
    return readlinkSync('/proc/self/ns/pid');
  } catch {
    return ''; // systems other than Linux have none
  }
}

/**
 * The path of a new file beside `path`, to be renamed to it when complete: `<path>.<place>-<process>-<random>.part`.
 * Those that killed processes left for the same `path` are removed first, folders included.
 */
export async function partPath(path: string): Promise<string> {
  await removeStaleParts(path);
  return newPartPath(path);
}

/**
 * Takes over the part that a killed writer of `path`, or one that called `keepPart`, has left.
 * @returns its new path, one of this process; undefined when there is none
 */
export async function adoptPart(path: string): Promise<string | undefined> {
  for (const left of [keptPath(path), ...(await staleParts(path))]) {
    const own = newPartPath(path);
    const isOurs = await rename(left, own).then(
      () => true,
      () => false, // there is none, or another writer was first
    );
    if (isOurs) return own;
  }
  return undefined;
}

/** Leaves a part to the next writer of `path`. */
export async function keepPart(part: string, path: string): Promise<void> {
  await rename(part, keptPath(path));
}

const keptPath = (path: string): string => `${path}.kept.part`;

function newPartPath(path: string): string {
  return `${path}.${processPlace()}-${process.pid}-${randomUUID().slice(0, 8)}.part`;
}

async function removeStaleParts(path: string): Promise<void> {
  for (const part of await staleParts(path)) await rm(part, { force: true, recursive: true }).catch(() => undefined);
}

/** Parts whose writers have ended. */
async function staleParts(path: string): Promise<string[]> {
  const [folder, prefix] = [dirname(path), `${basename(path)}.`];
  const names = await readdir(folder).catch(() => []); // opening the file reports a folder that cannot be read
  const stale: string[] = [];
  const kept = keptPath(path);
  if ((names as readonly string[]).includes(basename(kept)) && (await isOld(kept))) stale.push(kept);
  for (const name of names) {
    if (!name.startsWith(prefix)) continue;
    const [, writerPlace, pid] = /^([0-9a-f]{8})-(\d{1,10})-[0-9a-f]{8}\.part$/.exec(name.slice(prefix.length)) ?? [];
    if (pid === undefined) continue;
    const part = join(folder, name);
    const isDead = writerPlace === processPlace() && !isAlive(Number(pid));
    if (isDead || (await isOld(part))) stale.push(part);
  }
  return stale;
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0); // sends nothing
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}

async function isOld(path: string): Promise<boolean> {
  const found = await lstat(path).catch(() => undefined);
  return found !== undefined && performance.timeOrigin + performance.now() - found.mtimeMs > staleMs;
}
