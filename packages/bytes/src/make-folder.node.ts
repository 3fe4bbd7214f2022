/** Folders to write into. */
import { mkdir, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { IoError } from '@winnow/tensor';
import { fileError } from './file-error.node.js';

/** The error that keeps the folder `path` from existing; undefined once it exists, also if another process made it. */
async function obstacle(path: string): Promise<NodeJS.ErrnoException | undefined> {
  try {
    await mkdir(path);
  } catch (error) {
    const isThere = await stat(path).then(
      (found) => found.isDirectory(),
      () => false,
    );
    if (!isThere) return error as NodeJS.ErrnoException;
  }
  return undefined;
}

/**
 * Makes the folder `path` and its parents where they are missing. Unlike `mkdir` of Node with `recursive` it
 * ends in folders like `/proc`, which answer that they do not exist when a folder is to be made in them.
 * @throws {IoError} when something else is there or the system refuses
 */
export async function makeFolder(path: string): Promise<void> {
  let error = await obstacle(path);
  const parent = dirname(path);
  if (error?.code === 'ENOENT' && parent !== path) {
    await makeFolder(parent);
    error = await obstacle(path);
  }
  if (error?.code === 'EEXIST')
    throw new IoError({ source: path, message: 'is there and is no folder' }, { cause: error });
  if (error !== undefined) throw fileError(path, error);
}
