/** Blobs over HTTP: GET with ranges, HEAD, PUT and DELETE, as object stores and WebDAV servers support them. */
import { Readable } from 'node:stream';
import type { ReadableStream } from 'node:stream/web';
import { contentRangeOf, isHtml, retryAfterMs, validatorOf } from '@winnow/bytes';
import { ArgumentError, checkOptions, WinnowError, type OptionNames } from '@winnow/tensor';
import { BlobError, existingBlob, missingBlob, reasonOfStatus } from './blob-error.js';
import {
  callOptionNames,
  checkKey,
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
import { Checksum, counted } from './checksum.node.js';
import { readStream, type BlobAnswer } from './read-stream.node.js';

export interface HttpBlobStoreOptions {
  /** Default: the global `fetch`. */
  readonly fetch?: typeof fetch;
  /** Sent with every request, for example `Authorization`. */
  readonly headers?: Readonly<Record<string, string>>;
}

const optionNames: OptionNames<HttpBlobStoreOptions> = { fetch: true, headers: true };

/** Maximum number of consecutive attempts of a read without progress. */
const maxAttempts = 4;
const retryDelayMs = 250;

/**
 * A key is a path below the URL. After a transient failure, reads continue from the byte where it occurred. The server must
 * make a PUT visible only when it is complete, and support `If-None-Match: *` for `ifAbsent`; the store cannot list or resume.
 * @throws {ArgumentError} for an invalid URL, or one with a password, which errors would reveal: pass it in a header
 */
export function createHttpBlobStore(url: string | URL, options: HttpBlobStoreOptions = {}): BlobStore {
  checkOptions(options, optionNames);
  const parsed = URL.parse(String(url));
  if (parsed === null || parsed.username !== '' || parsed.password !== '') {
    // also if it cannot be parsed, for example because of a '#' in the password
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
    const { signal } = options;
    const source = this.#urlOf(key);
    const open = (offset: number, end: number | undefined): Promise<BlobAnswer> =>
      offset === end ? this.#probe(key, signal) : this.#get(source, offset, end, signal);
    const errorOf = (cause: unknown): unknown => reasonOf(cause, source, 'GET');
    yield* readStream({ source, maxAttempts, retryDelayMs, open, errorOf }, options);
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
    const version = validatorOf(headers);
    return { key, sizeBytes: Number(length), ...modifiedAt, ...(version === undefined ? {} : { version }) };
  }

  async delete(key: string, options: BlobCallOptions = {}): Promise<boolean> {
    checkOptions(options, callOptionNames);
    const { status } = await this.#send(this.#urlOf(key), 'DELETE', [200, 202, 204, 404], options.signal);
    return status !== 404;
  }

  async list(): Promise<BlobInfo[]> {
    throw new ArgumentError({ argument: 'list', expected: 'a store that lists', actual: `HTTP at ${this.name}` });
  }

  /** Answers a read of zero bytes, for which no range exists. */
  async #probe(key: string, signal: AbortSignal | undefined): Promise<BlobAnswer> {
    const info = await this.stat(key, signal === undefined ? {} : { signal });
    if (info === undefined) throw missingBlob(this.#urlOf(key));
    return { ...info, body: nothing(), version: info.version };
  }

  async #get(
    source: string,
    offset: number,
    end: number | undefined,
    signal: AbortSignal | undefined,
  ): Promise<BlobAnswer> {
    const range = `bytes=${offset}-${end === undefined ? '' : end - 1}`;
    const response = await this.#request(source, 'GET', signal, { headers: { range } });
    try {
      const sizeBytes = sizeOf(response, source, offset);
      const isBeyond = response.status === 416;
      if (isBeyond) await response.body?.cancel();
      const body = isBeyond ? nothing() : (response.body ?? nothing());
      const discard = async (): Promise<void> => response.body?.cancel();
      return { sizeBytes, body, version: validatorOf(response.headers), discard };
    } catch (error) {
      await response.body?.cancel();
      throw error;
    }
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
    const response = await this.#request(url, method, signal, init);
    await response.body?.cancel();
    if (expected.includes(response.status)) return response;
    throw refused(url, method, response);
  }

  /** Sends a request; the caller must read or cancel the body. */
  async #request(
    url: string,
    method: string,
    signal: AbortSignal | undefined,
    init: { readonly headers?: Readonly<Record<string, string>> } = {},
  ): Promise<Response> {
    const { fetch: send = fetch, headers = {} } = this.#options;
    try {
      const sent = { ...headers, ...init.headers };
      return await send(url, { ...init, method, headers: sent, ...(signal && { signal }) });
    } catch (error) {
      signal?.throwIfAborted();
      throw reasonOf(error, url, method);
    }
  }
}

async function* nothing(): AsyncGenerator<Uint8Array, void, void> {}

function refused(source: string, method: string, { status, headers }: Response): BlobError {
  const message = `${method} failed with status ${status}`;
  return new BlobError({ source, reason: reasonOfStatus(status), message, retryAfterMs: retryAfterMs(headers) });
}

/**
 * The size of the content, from an answer to a request for the bytes from `offset`.
 * @throws {BlobError} unless it is that range, or the whole content for an offset of 0
 */
function sizeOf(response: Response, source: string, offset: number): number {
  const { status, headers } = response;
  const fail = (message: string): never => {
    throw new BlobError({ source, byteOffset: offset, reason: 'failed', message });
  };
  const range = contentRangeOf(headers);
  if (status === 416 && range?.sizeBytes !== undefined) return range.sizeBytes; // there are no bytes from there on
  if (status !== 200 && status !== 206) {
    throw status === 404 || status === 410 ? missingBlob(source) : refused(source, 'GET', response);
  }
  if (isHtml(headers)) fail('the server answered with a page of HTML, as if there were no such content');
  const encoding = headers.get('content-encoding') ?? 'identity';
  if (encoding !== 'identity') fail(`expected plain bytes, got Content-Encoding ${encoding}`);
  if (status === 206) {
    const found = headers.get('content-range') ?? 'none';
    if (range?.first !== offset) fail(`wrong range, expected bytes from ${offset}, got Content-Range ${found}`);
    return range?.sizeBytes ?? fail(`expected Content-Range with the size of the content, got ${found}`);
  }
  if (offset > 0) fail('the server does not support ranges (status 200, expected 206)');
  const length = headers.get('content-length');
  return length === null ? fail('the answer to GET has no Content-Length') : Number(length);
}

/** The error of a failed request: what the content threw, or an error of the network. */
function reasonOf(error: unknown, source: string, method: string): unknown {
  for (let each: unknown = error; each instanceof Error; each = each.cause) {
    if (WinnowError.isInstance(each) || each.name === 'AbortError') return each;
  }
  const { cause } = error as Error;
  const detail = cause instanceof Error ? cause.message : String((error as Error).message);
  return new BlobError({ source, reason: 'unavailable', message: `${method} failed: ${detail}` }, { cause: error });
}
