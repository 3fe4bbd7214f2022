/** Opens models by URL. */
import { httpSource, type HttpSourceOptions } from '@winnow/bytes';
import { openGguf, openGgufNames, type GgufFile, type OpenGgufOptions } from './gguf-file.js';
import { openSplitGguf, parseGgufSplitName } from './split.js';
import { checkOptions, type OptionNames } from '@winnow/tensor';

/** Options of `openGgufUrl`. `signal` aborts opening and every later read. */
export interface OpenGgufUrlOptions extends OpenGgufOptions, HttpSourceOptions {}

const openGgufUrlNames: OptionNames<OpenGgufUrlOptions> = {
  ...openGgufNames,
  fetch: true,
  headers: true,
  maxRetries: true,
  retryDelayMs: true,
};

/**
 * Opens the model at `url` by range requests, without downloading it. Given any part of a split model
 * (`-00001-of-00003.gguf`) it opens all of them, with the same query string.
 * @throws {FormatError | IoError} as `openGguf` and `httpSource`
 */
export async function openGgufUrl(url: string | URL, options: OpenGgufUrlOptions = {}): Promise<GgufFile> {
  checkOptions(options, openGgufUrlNames);
  const { limits, ...httpOptions } = options;
  const { signal } = options;
  const openOptions = { ...(limits && { limits }), ...(signal && { signal }) };
  const text = String(url);
  const end = text.search(/[?#]/);
  const path = end < 0 ? text : text.slice(0, end);
  const query = end < 0 ? '' : text.slice(end);
  if (parseGgufSplitName(path) !== undefined) {
    return openSplitGguf(path, (name) => httpSource(name + query, httpOptions), openOptions);
  }
  const source = await httpSource(text, httpOptions);
  try {
    return await openGguf(source, openOptions);
  } catch (error) {
    await source.close();
    throw error;
  }
}
