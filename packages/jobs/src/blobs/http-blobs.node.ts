/** Blobs behind HTTP: GET with ranges, HEAD, PUT and DELETE, as object stores and WebDAV servers have them. */
import { Readable } from 'node:stream';
import type { ReadableStream } from 'node:stream/web';
import { httpSource } from '@winnow/bytes';
import { ArgumentError, checkOptions, IoError, type OptionNames } from '@winnow/tensor';
import { BlobError, existingBlob, missingBlob, reasonOfStatus } from './blob-error.js';
import {
  callOptionNames,
  checkKey,
  endOf,
  readOptionNames,
  writeOptionNames,
  type BlobCallOptions,
  type BlobContent,
  type BlobInfo,
  type BlobStore,
  type ReadBlobOptions,
  type WriteBlobOptions,
  type WrittenBlob,
} from './blob-store.js';
import { Checksum, counted, readParts } from './checksum.node.js';

export interface HttpBlobStoreOptions {
  /** Default: the global `fetch`. */
  readonly fetch?: typeof fetch;
  /** Sent with every request, for example `Authorization`. */
  readonly headers?: Readonly<Record<string, string>>;
}

const optionNames: OptionNames<HttpBlobStoreOptions> = { fetch: true, headers: true };

const partBytes = 1024 * 1024;

/**
 * A key is a path below the URL. Reads continue after a transient failure from the byte where it occurred. The server must
 * make a PUT visible when it is complete, or never, and know `If-None-Match: *` for `ifAbsent`; it cannot list or resume.
 * @throws {ArgumentError} for no URL, or one with a password, which would be in errors: that belongs in a header
 */
export function createHttpBlobStore(url: string | URL, options: HttpBlobStoreOptions = {}): BlobStore {
  checkOptions(options, optionNames);
  const parsed = URL.parse(String(url));
  if (parsed === null || parsed.username !== '' || parsed.password !== '') {
    // also of one that cannot be parsed, such as for a '#' in the password
    const actual = String(url).includes('@') ? 'one with a password' : `'${String(url)}'`;
    throw new ArgumentError({ argument: 'url', expected: 'a URL without a password', actual });
  }
  return new HttpBlobStore(String(url).replace(/\/*$/, '/'), options);
}

class HttpBlobStore implements BlobStore {
  readonly name: string;
  readonly canList = false;
  readonly canResume = false;
  readonly #options: HttpBlobStoreOptions;

  constructor(url: string, options: HttpBlobStoreOptions) {
    this.name = url;
    this.#options = options;
  }

  async write(key: string, content: BlobContent, options: WriteBlobOptions = {}): Promise<WrittenBlob> {
    checkOptions(options, writeOptionNames);
    const { sha256: expected, ifAbsent = false, signal } = options;
    const checksum = new Checksum();
    let sha256 = '';
    async function* body(url: string): AsyncGenerator<Uint8Array, void, void> {
      yield* counted(content, checksum, signal);
      sha256 = checksum.end(url, expected); // an error here aborts the request, so that nothing is stored
    }
    const url = this.#urlOf(key);
    const stream = Readable.toWeb(Readable.from(body(url), { objectMode: false })) as ReadableStream;
    const headers = ifAbsent ? { 'if-none-match': '*' } : {};
    const statuses = ifAbsent ? [200, 201, 204, 412] : [200, 201, 204];
    const { status } = await this.#send(url, 'PUT', statuses, signal, {
      ...{ body: stream, duplex: 'half', headers },
    });
    if (status === 412) throw existingBlob(url);
    return { key, sizeBytes: checksum.sizeBytes, sha256, resumedBytes: 0 };
  }

  async *read(key: string, options: ReadBlobOptions = {}): AsyncGenerator<Uint8Array, void, void> {
    checkOptions(options, readOptionNames);
    const { sha256, signal } = options;
    const url = this.#urlOf(key);
    const info = await this.stat(key, signal === undefined ? {} : { signal });
    if (info === undefined) throw missingBlob(url);
    if (info.sizeBytes === 0) {
      endOf(options, 0); // a range of an empty file does not exist
      new Checksum().end(url, sha256);
      return;
    }
    const source = await httpSource(url, { ...this.#options, ...(signal && { signal }) });
    yield* readParts(source, url, partBytes, options);
  }

  async stat(key: string, options: BlobCallOptions = {}): Promise<BlobInfo | undefined> {
    checkOptions(options, callOptionNames);
    const { status, headers } = await this.#send(this.#urlOf(key), 'HEAD', [200, 404], options.signal);
    if (status === 404) return undefined;
    const modified = Date.parse(headers.get('last-modified') ?? '');
    const modifiedAt = Number.isNaN(modified) ? {} : { modifiedAtMs: modified };
    const length = headers.get('content-length');
    if (length === null) {
      const message = 'the answer to HEAD has no Content-Length';
      throw new BlobError({ source: this.#urlOf(key), reason: 'failed', message });
    }
    return { key, sizeBytes: Number(length), ...modifiedAt };
  }

  async delete(key: string, options: BlobCallOptions = {}): Promise<boolean> {
    checkOptions(options, callOptionNames);
    const { status } = await this.#send(this.#urlOf(key), 'DELETE', [200, 202, 204, 404], options.signal);
    return status !== 404;
  }

  async list(): Promise<BlobInfo[]> {
    throw new ArgumentError({ argument: 'list', expected: 'a store that lists', actual: `HTTP at ${this.name}` });
  }

  #urlOf(key: string): string {
    checkKey(key);
    return `${this.name}${key}`;
  }

  async #send(
    url: string,
    method: string,
    expected: readonly number[],
    signal: AbortSignal | undefined,
    init: { readonly headers?: Readonly<Record<string, string>> } = {},
  ): Promise<Response> {
    const { fetch: send = fetch, headers = {} } = this.#options;
    let response: Response;
    try {
      const sent = { ...headers, ...init.headers };
      response = await send(url, { ...init, method, headers: sent, ...(signal && { signal }) });
    } catch (error) {
      throw reasonOf(error, url, method);
    }
    await response.body?.cancel();
    if (expected.includes(response.status)) return response;
    const message = `${method} failed with status ${response.status}`;
    throw new BlobError({ source: url, reason: reasonOfStatus(response.status), message });
  }
}

/** The reason of a failed request: what the content threw, or the network. */
function reasonOf(error: unknown, source: string, method: string): unknown {
  for (let each: unknown = error; each instanceof Error; each = each.cause) {
    if (IoError.isInstance(each) || each.name === 'AbortError') return each;
  }
  const { cause } = error as Error;
  const detail = cause instanceof Error ? cause.message : String((error as Error).message);
  return new BlobError({ source, reason: 'unavailable', message: `${method} failed: ${detail}` }, { cause: error });
}
