/** Control of the page cache without root. */
import { execFile } from 'node:child_process';
import { stat } from 'node:fs/promises';
import { promisify } from 'node:util';

const run = promisify(execFile);

/**
 * Asks the system to drop the cached pages of a file (GNU dd: posix_fadvise), and checks the result (fincore of
 * util-linux).
 * @returns the share of the file that is still in memory; undefined if unknown
 */
export async function dropFromPageCache(path: string): Promise<number | undefined> {
  try {
    await run('dd', [`of=${path}`, 'oflag=nocache', 'conv=notrunc,fdatasync', 'count=0']);
    const { stdout } = await run('fincore', ['--bytes', '--noheadings', '--output', 'RES', path]);
    const { size } = await stat(path);
    return Number(stdout.trim()) / size;
  } catch {
    return undefined;
  }
}
