/** Creates folders to write into. */
import { mkdir, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { IoError } from '@winnow/tensor';
import { fileError } from './error.node.js';

/** The error that prevents creating the folder `path`; undefined when it exists, also if another process created it. */
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
 * Creates the folder `path` and its missing parents. Unlike Node's recursive `mkdir` it terminates in folders like
 * `/proc`, which report that they do not exist when a folder is created in them.
 * @throws {IoError} when a file of that name exists or the system denies it
 */
export async function makeFolder(path: string): Promise<void> {
  let error = await obstacle(path);
  const parent = dirname(path);
  if (error?.code === 'ENOENT' && parent !== path) {
    await makeFolder(parent);
    error = await obstacle(path);
  }
  if (error?.code === 'EEXIST')
    throw new IoError({ source: path, message: 'exists and is not a folder' }, { cause: error });
  if (error !== undefined) throw fileError(path, error);
}
