/** Where a model comes from, and how its files are fetched. */
import { httpSource, isHtml, type ByteSource } from '@winnow/bytes';
import { openGguf, openSplitGguf, parseGgufSplitName, type GgufFile } from '@winnow/gguf';
import type { HubFiles } from '@winnow/hub';
import { IoError } from '@winnow/tensor';

/**
 * A file of a folder whose files you open, such as one of an object store: a `.gguf` file (any part of a split one) or a
 * `.safetensors` file that is a whole model.
 */
export interface FolderFile {
  readonly files: HubFiles;
  /** Name in the folder. */
  readonly file: string;
}

/**
 * Where a model comes from: the path or URL of a `.gguf` file (any part of a split one) or of a Hugging Face folder (a
 * URL that ends in `/`), with safetensors or ONNX weights, the path of an `.onnx` file of such a folder, the path or URL
 * of a `.safetensors` file that is a whole model (its header carries the texts of `config.json`, `tokenizer.json`, ... as
 * metadata of these names), an open file or Blob of either, the files of a folder, or a file of them. Paths need Node; in a page, a path
 * that begins with `/` is one of its server. The model takes ownership of an open file and closes it when it is disposed
 * of or cannot be loaded.
 */
export type ModelLocation = string | URL | Blob | ByteSource | HubFiles | FolderFile;

/** Takes the other parts of a split file from the same folder. @throws {FormatError | IoError} */
export async function openFolderGguf(
  { files, file }: FolderFile,
  options: { readonly signal?: AbortSignal },
): Promise<GgufFile> {
  if (parseGgufSplitName(file) !== undefined) return openSplitGguf(file, (part) => files.open(part), options);
  const source = await files.open(file);
  try {
    return await openGguf(source, options);
  } catch (error) {
    await source.close();
    throw error;
  }
}

export interface OpenOptions {
  /** The function that requests URLs. Default: the global `fetch`. */
  readonly fetch?: typeof fetch;
  readonly signal?: AbortSignal;
}

/**
 * A Hugging Face folder behind a URL, file by file.
 * @param base a URL that ends in `/`. A server cannot list files, so `list` is empty
 * @param signal ends the requests and every later read
 */
export function urlFolder(base: URL, request: typeof fetch, signal?: AbortSignal): HubFiles {
  const withSignal = signal === undefined ? {} : { signal };
  const urlOf = (name: string): URL => new URL(name.split('/').map(encodeURIComponent).join('/'), base);
  return {
    name: base.href,
    list: () => Promise.resolve([]),
    async has(name): Promise<boolean> {
      const url = urlOf(name);
      let response: Response;
      try {
        response = await request(url, { method: 'HEAD', ...withSignal });
      } catch (cause) {
        signal?.throwIfAborted();
        const reason = cause instanceof Error ? cause.message : String(cause);
        throw new IoError({ source: url.href, message: `no answer: ${reason}` }, { cause });
      }
      // servers of web apps answer with an HTML page for every name that they do not know
      if (response.ok) return !isHtml(response.headers);
      if (response.status === 404 || response.status === 410) return false;
      throw new IoError({ source: url.href, message: `expected an answer of 200 or 404, got ${response.status}` });
    },
    open: (name) => httpSource(urlOf(name), { fetch: request, ...withSignal }),
  };
}
