/** Opens models by URL. */
import { httpSource, type HttpSourceOptions } from '@winnow/bytes';
import { openGguf, type GgufFile, type OpenGgufOptions } from './gguf-file.js';
import { openSplitGguf, parseGgufSplitName } from './split.js';

/** Options of `openGgufUrl`. `signal` aborts opening and every later read. */
export interface OpenGgufUrlOptions extends OpenGgufOptions, HttpSourceOptions {}

/**
 * Opens the model at `url` by range requests, without downloading it. Given any part of a split model
 * (`-00001-of-00003.gguf`) it opens all of them, with the same query string.
 * @throws {FormatError | IoError} as `openGguf` and `httpSource`
 */
export async function openGgufUrl(url: string | URL, options: OpenGgufUrlOptions = {}): Promise<GgufFile> {
  const text = String(url);
  const end = text.search(/[?#]/);
  const path = end < 0 ? text : text.slice(0, end);
  const query = end < 0 ? '' : text.slice(end);
  if (parseGgufSplitName(path) !== undefined) {
    return openSplitGguf(path, (name) => httpSource(name + query, options), options);
  }
  const source = await httpSource(text, options);
  try {
    return await openGguf(source, options);
  } catch (error) {
    await source.close();
    throw error;
  }
}
