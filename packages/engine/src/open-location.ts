/** From a location to an open model. Paths are left to the host. */
import { blobSource, type ByteSource } from '@winnow/bytes';
import { openGguf, openGgufUrl } from '@winnow/gguf';
import type { HubFiles } from '@winnow/hub';
import { ArgumentError } from '@winnow/tensor';
import { openGgufModel, openHubModel, type OpenedModel } from './opened-model.js';
import type { ModelLocation, OpenOptions } from './types.js';
import { urlFolder } from './url-folder.js';

/** Opens a path of the file system. */
export type OpenPath = (path: string | URL, options: OpenOptions) => Promise<OpenedModel>;

/**
 * @param openPath for strings that are not `http(s)` URLs and for `file:` URLs; without it they are refused
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
    if (/^https?:/i.test(text)) return openUrl(new URL(text), options);
    if (openPath === undefined) {
      throw new ArgumentError({ argument: 'location', expected: 'an http(s) URL, a Blob or files', actual: text });
    }
    return openPath(location, options);
  }
  if (location instanceof Blob) return openSource(blobSource(location), withSignal);
  return 'list' in location ? openHubModel(location satisfies HubFiles, withSignal) : openSource(location, withSignal);
}

async function openUrl(url: URL, { fetch: request = fetch, signal }: OpenOptions): Promise<OpenedModel> {
  const withSignal = signal === undefined ? {} : { signal };
  if (url.pathname.endsWith('/')) return openHubModel(urlFolder(url, request), withSignal);
  return closeOnError(await openGgufUrl(url, { fetch: request, ...withSignal }));
}

async function openSource(source: ByteSource, options: { signal?: AbortSignal }): Promise<OpenedModel> {
  return closeOnError(await openGguf(source, options));
}

/** The file may be GGUF and still hold no usable model; it must not stay open then. */
export async function closeOnError(file: Parameters<typeof openGgufModel>[0]): Promise<OpenedModel> {
  try {
    return openGgufModel(file);
  } catch (error) {
    await file.close();
    throw error;
  }
}
