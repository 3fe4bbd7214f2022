/** The page cache of the system, as far as it can be told something without being root. */
import { execFile } from 'node:child_process';
import { stat } from 'node:fs/promises';
import { promisify } from 'node:util';

const run = promisify(execFile);

/**
 * Asks the system to forget the pages of a file (GNU dd: posix_fadvise), and looks whether it has (fincore of util-linux).
 * @returns the share of the file that is still in memory; undefined where that cannot be found out
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
