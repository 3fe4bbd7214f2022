/** A file that one process at a time has: two builds in one folder would sweep each other's outputs. */
import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';

/** Waits until the lock is free or its process has ended; returns what frees it. @param wait between two looks at it */
export async function lock(path, wait = () => delay(100)) {
  for (;;) {
    try {
      writeFileSync(path, String(process.pid), { flag: 'wx' });
      return () => rmSync(path, { force: true });
    } catch (error) {
      if (error.code !== 'EEXIST') throw error;
    }
    if (hasEnded(holderOf(path))) removeEnded(path);
    else await wait();
  }
}

/** Moves the file of an ended process away, and back if another process has replaced it in the meantime. */
function removeEnded(path) {
  const moved = `${path}.${process.pid}`;
  try {
    renameSync(path, moved);
    if (hasEnded(holderOf(moved))) rmSync(moved, { force: true });
    else renameSync(moved, path);
  } catch (error) {
    if (error.code !== 'ENOENT') throw error; // another process moved it first
  }
}

/** The process that has the lock; NaN if it is about to write or to free it. */
function holderOf(path) {
  try {
    return Number.parseInt(readFileSync(path, 'utf8'), 10);
  } catch {
    return NaN;
  }
}

function hasEnded(processId) {
  try {
    return !Number.isNaN(processId) && !process.kill(processId, 0);
  } catch (error) {
    return error.code === 'ESRCH';
  }
}
