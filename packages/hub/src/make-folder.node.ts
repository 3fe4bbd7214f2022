/** Folders with their parents. */
import { mkdir, stat } from 'node:fs/promises';
import { dirname } from 'node:path';

/**
 * Makes a folder and the parents it lacks. Unlike `mkdir` with `recursive`, which tries for ever where a parent exists
 * but takes no folders and says ENOENT (as /proc does), this fails.
 */
export async function makeFolder(path: string): Promise<void> {
  try {
    await mkdir(path);
    return;
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    if ((await stat(path).catch(() => undefined))?.isDirectory() === true) return;
    if (code !== 'ENOENT' || dirname(path) === path) throw error;
  }
  await makeFolder(dirname(path));
  try {
    await mkdir(path);
  } catch (error) {
    // another process may have been faster
    if ((await stat(path).catch(() => undefined))?.isDirectory() !== true) throw error;
  }
}
