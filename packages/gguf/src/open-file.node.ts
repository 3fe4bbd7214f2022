/** Opens models on the local disk. */
import { fileSource } from '@winnow/bytes/node';
import { openGguf, type GgufFile, type OpenGgufOptions } from './gguf-file.js';
import { openSplitGguf, parseGgufSplitName } from './split.js';

/**
 * Opens the model at `path` for positioned reads. Given any part of a split model (`-00001-of-00003.gguf`) it opens
 * all of them.
 * @throws {FormatError | IoError} as `openGguf` and `fileSource`
 */
export async function openGgufFile(path: string, options: OpenGgufOptions = {}): Promise<GgufFile> {
  if (parseGgufSplitName(path) !== undefined) return openSplitGguf(path, fileSource, options);
  const source = await fileSource(path);
  try {
    return await openGguf(source, options);
  } catch (error) {
    await source.close();
    throw error;
  }
}
