/**
 * A lock between processes: a folder that only one of them can put in place. The owner touches it while it works, so a lock left
 * behind by a killed process is recognized by its age, or at once when its owner ran on this machine and is gone.
 */
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { say, toolchainFolder } from './log.mjs';

const heartbeatMs = 2_000;
/** Fifteen missed heartbeats: longer than a laptop's short stalls, short enough to wait for. */
const staleAfterMs = 30_000;
const pollMs = 150;

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function alive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === 'EPERM';
  }
}

function ownerOf(folder) {
  try {
    return JSON.parse(readFileSync(join(folder, 'owner.json'), 'utf8'));
  } catch {
    return undefined;
  }
}

function isStale(folder) {
  let ageMs;
  try {
    ageMs = Date.now() - statSync(folder).mtimeMs;
  } catch {
    return false;
  }
  const owner = ownerOf(folder);
  return ageMs > staleAfterMs || (owner !== undefined && owner.host === hostname() && !alive(owner.pid));
}

/** Moves the stale lock away under a name of our own, and puts it back if another process was faster and owns it now. */
function removeStale(folder) {
  const grave = `${folder}.stale-${process.pid}-${Date.now()}`;
  try {
    renameSync(folder, grave);
    if (isStale(grave)) rmSync(grave, { recursive: true, force: true });
    else renameSync(grave, folder);
  } catch {
    // Somebody else moved it first.
  }
}

/** A folder with the owner inside is prepared and renamed into place, so that a lock is never seen without its owner. */
function tryTake(folder, token) {
  const prepared = `${folder}.${token}`;
  mkdirSync(prepared);
  writeFileSync(join(prepared, 'owner.json'), JSON.stringify({ pid: process.pid, host: hostname(), token }));
  try {
    renameSync(prepared, folder);
    return true;
  } catch (error) {
    rmSync(prepared, { recursive: true, force: true });
    if (['EEXIST', 'ENOTEMPTY', 'EPERM', 'EACCES'].includes(error.code)) return false;
    throw error;
  }
}

/** Runs `action` while holding the named lock. */
export async function withLock(name, action) {
  mkdirSync(toolchainFolder, { recursive: true });
  const folder = join(toolchainFolder, `${name}.lock`);
  const token = `${process.pid}-${Date.now()}-${Math.random().toString(36).slice(2)}`;
  let told = false;
  while (existsSync(folder) || !tryTake(folder, token)) {
    if (isStale(folder)) {
      removeStale(folder);
      continue;
    }
    if (!told) say(`waiting for another run that holds .toolchain/${name}.lock ...`);
    told = true;
    await sleep(pollMs);
  }
  const heartbeat = setInterval(() => {
    try {
      utimesSync(folder, new Date(), new Date());
    } catch {
      // Removed from outside: nothing is left to keep alive.
    }
  }, heartbeatMs);
  const releaseNow = () => {
    if (ownerOf(folder)?.token === token) rmSync(folder, { recursive: true, force: true });
  };
  process.once('exit', releaseNow);
  try {
    return await action();
  } finally {
    clearInterval(heartbeat);
    process.off('exit', releaseNow);
    releaseNow();
  }
}
