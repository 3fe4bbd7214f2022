/** Folders to write into. */
import { mkdir, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { IoError } from '@winnow/tensor';
import { fileError } from './file-error.node.js';

const isFolder = (path: string): Promise<boolean> =>
  stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  );

/**
 * Makes the folder `path` and those that it lies in, where they are missing. Unlike `mkdir` of Node with `recursive` it
 * ends in folders like `/proc`, which answer that they do not exist when a folder is to be made in them.
 * @throws {IoError} when a file is in the way or the system refuses
 */
export async function makeFolder(path: string): Promise<void> {
  try {
    await mkdir(path);
  } catch (error) {
    if (await isFolder(path)) return;
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'EEXIST')
      throw new IoError({ source: path, message: 'is a file, expected a folder' }, { cause: error });
    const parent = dirname(path);
    if (code !== 'ENOENT' || parent === path || (await isFolder(parent))) throw fileError(path, error);
    await makeFolder(parent);
    await makeFolder(path);
  }
}
