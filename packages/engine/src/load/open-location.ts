/** Opens a model at a location. The host opens paths. */
import { blobSource, httpSource, readBytes, type ByteSource } from '@winnow/bytes';
import { openGguf, openGgufUrl, type GgufFile } from '@winnow/gguf';
import type { HubFiles } from '@winnow/hub';
import { ArgumentError } from '@winnow/tensor';
import {
  formatOfHeader,
  formatOfName,
  headerBytes,
  openGgufModel,
  openHubModel,
  type OpenedModel,
} from './opened-model.js';
import { openFolderGguf, urlFolder, type FolderFile, type ModelLocation, type OpenOptions } from './location.js';

/** Opens a path of the file system, or returns the URL of a path of a page's server. */
export type OpenPath = (path: string | URL, options: OpenOptions) => Promise<OpenedModel> | string;

/**
 * @param openPath for strings that are not `http(s)` URLs and for `file:` URLs; without it they are rejected
 * @throws {FormatError | IoError | ArgumentError}
 */
export async function openLocation(
  location: ModelLocation,
  options: OpenOptions,
  openPath: OpenPath | undefined,
): Promise<OpenedModel> {
  const { signal } = options;
  const withSignal = signal === undefined ? {} : { signal };
  if (typeof location === 'string' || location instanceof URL) {
    const text = String(location);
    if (/^https?:/i.test(text)) return openUrl(text, options);
    if (openPath === undefined) throw refusal('an http(s) URL, a Blob or files', text);
    const found = openPath(location, options);
    return typeof found === 'string' ? openUrl(found, options) : found;
  }
  if (location instanceof Blob) return openSource(blobSource(location), withSignal);
  if (isObjectWith(location, 'files')) return openFolderFile(location as FolderFile, withSignal);
  if (isObjectWith(location, 'list')) return openHubModel(location as HubFiles, withSignal);
  if (isObjectWith(location, 'sizeBytes')) return openSource(location as ByteSource, withSignal);
  throw refusal(
    'a path, a URL, a Blob, an open file or the files of a folder',
    Object.prototype.toString.call(location),
  );
}

function isObjectWith(value: unknown, key: string): boolean {
  return typeof value === 'object' && value !== null && key in value;
}

export function refusal(expected: string, actual: string): ArgumentError {
  return new ArgumentError({ argument: 'location', expected, actual });
}

/** @param text an http(s) URL */
async function openUrl(text: string, { fetch: request = fetch, signal }: OpenOptions): Promise<OpenedModel> {
  const withSignal = signal === undefined ? {} : { signal };
  if (!URL.canParse(text)) throw refusal('a URL', text);
  const url = new URL(text);
  if (url.pathname.endsWith('/')) return openHubModel(urlFolder(url, request, signal), withSignal);
  const httpOptions = { fetch: request, ...withSignal };
  const format = formatOfName(url.pathname);
  if (format !== undefined) return format.open(await httpSource(url, httpOptions), withSignal);
  return openGgufOrClose(await openGgufUrl(url, httpOptions));
}

async function openFolderFile(location: FolderFile, options: { signal?: AbortSignal }): Promise<OpenedModel> {
  const { files, file } = location;
  const format = formatOfName(file);
  if (format !== undefined) return format.open(await files.open(file), options);
  return openGgufOrClose(await openFolderGguf(location, options));
}

async function openSource(source: ByteSource, options: { signal?: AbortSignal }): Promise<OpenedModel> {
  let file: GgufFile;
  try {
    const length = Math.min(headerBytes, source.sizeBytes);
    const format = formatOfHeader(await readBytes(source, 0, length, options));
    if (format !== undefined) return await format.open(source, options);
    file = await openGguf(source, options);
  } catch (error) {
    await source.close();
    throw error;
  }
  return openGgufOrClose(file);
}

/** Takes ownership of an open GGUF file and closes it if it has no usable model. */
export async function openGgufOrClose(file: GgufFile): Promise<OpenedModel> {
  try {
    return openGgufModel(file);
  } catch (error) {
    await file.close();
    throw error;
  }
}
