/** Writes output files. */
import { writeFile } from 'node:fs/promises';
import { IoError } from '@winnow/tensor';

/** Writes an output file. @throws {IoError} when it cannot be written, or the reason of the abort */
export async function writeOutputFile(
  path: string,
  content: string | Iterable<string | Uint8Array>,
  signal?: AbortSignal,
): Promise<void> {
  try {
    await writeFile(path, content, signal === undefined ? {} : { signal });
  } catch (cause) {
    signal?.throwIfAborted();
    throw new IoError({ source: path, message: `cannot be written (${(cause as Error).message})` }, { cause });
  }
}
