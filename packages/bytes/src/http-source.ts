/**
 * A URL as a source, by HTTP range requests (RFC 9110 §14). Every response is checked: it must be the requested range
 * of the file that was opened. Transient failures are retried from the byte where they occurred.
 */
import { checkOptions, IoError, type OptionNames, ReleasedError } from '@winnow/tensor';
import type { ByteSource } from './byte-source.js';
import { contentRangeOf, isHtml, isTransient, retryAfterMs, startsPage, validatorOf } from './http-headers.js';
import { checkCount, checkRange, messageOf } from './range.js';
import { retry, TransientError, type RetryOptions } from './retry.js';

/** Options of `httpSource`. */
export interface HttpSourceOptions {
  /** Default: the global `fetch`. */
  readonly fetch?: typeof fetch;
  /** Sent with every request, for example `Authorization`. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Aborts opening and every later read. */
  readonly signal?: AbortSignal;
  /** Maximum number of retries of a read after transient failures without progress. Default 3. */
  readonly maxRetries?: number;
  /**
   * Delay before the first retry in milliseconds; doubles with each. `Retry-After` is respected up to 30 s. Default
   * 250.
   */
  readonly retryDelayMs?: number;
}

const httpSourceNames: OptionNames<HttpSourceOptions> = {
  fetch: true,
  headers: true,
  signal: true,
  maxRetries: true,
  retryDelayMs: true,
};

/**
 * Largest file that is read completely from a server that ignores `Range`. The largest tokenizers have 35 MB; weights would
 * fill the memory before anything could be planned.
 */
export const MAX_WHOLE_BYTES: number = 64 * 1024 * 1024;

/** Number of bytes of a response that tell a page of HTML from a file. */
const pageStartBytes = 64;

/** The server answered with a page of HTML, as servers of web apps do for every name that they do not have. */
export class HtmlPageError extends IoError {
  override readonly name: string = 'HtmlPageError';
}

/**
 * Opens `url` with a request for its first byte, which reveals the size and whether the server supports ranges. If it does
 * not, a file of up to `MAX_WHOLE_BYTES` is read into memory. Redirects are followed on each request. Closing aborts the
 * reads in flight.
 * @throws {HtmlPageError} when the answer is a page of HTML
 * @throws {IoError} when the server does not respond, has no such file, or sends a large file only as a whole
 */
export async function httpSource(url: string | URL, options: HttpSourceOptions = {}): Promise<ByteSource> {
  checkOptions(options, httpSourceNames);
  const { maxRetries = 3, retryDelayMs = 250 } = options;
  checkCount('maxRetries', maxRetries);
  checkCount('retryDelayMs', retryDelayMs);
  const source = new HttpSource(String(url), options, { maxRetries, delayMs: retryDelayMs });
  await source.open();
  return source;
}

/** The first character of a page of HTML. */
const lessThan = 0x3c;

/** What the first request found. */
interface Probe {
  readonly sizeBytes: number;
  readonly validator: string | undefined;
  /** The content, when the server sent all of it. */
  readonly whole?: Uint8Array;
}

class HttpSource implements ByteSource {
  readonly name: string;
  readonly #options: HttpSourceOptions;
  readonly #retries: RetryOptions;
  readonly #closing = new AbortController();
  #sizeBytes = 0;
  #validator: string | undefined;
  /** The content, from a server that does not support ranges. */
  #whole: Uint8Array | undefined;
  #isOpen = true;

  constructor(name: string, options: HttpSourceOptions, retries: RetryOptions) {
    this.name = name;
    this.#options = options;
    this.#retries = retries;
  }

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  async open(): Promise<void> {
    const signal = this.#signalOf(undefined);
    const found = await this.#withRetries(
      () => this.#probe(signal),
      () => 0,
      undefined,
      signal,
    );
    this.#sizeBytes = found.sizeBytes;
    this.#validator = found.validator;
    this.#whole = found.whole;
  }

  async read(byteOffset: number, target: Uint8Array, options?: { readonly signal?: AbortSignal }): Promise<void> {
    if (!this.#isOpen) throw new ReleasedError(this.name);
    checkRange(this.name, this.#sizeBytes, byteOffset, target.byteLength);
    const signal = this.#signalOf(options?.signal);
    signal.throwIfAborted();
    if (target.byteLength === 0) return;
    if (this.#whole !== undefined) {
      target.set(this.#whole.subarray(byteOffset, byteOffset + target.byteLength));
      return;
    }
    let filled = 0;
    const onBytes = (numBytes: number): void => {
      filled += numBytes;
    };
    await this.#withRetries(
      () => this.#readOnce(byteOffset + filled, target.subarray(filled), onBytes, signal),
      () => filled,
      byteOffset,
      signal,
    );
  }

  async close(): Promise<void> {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#whole = undefined;
    this.#closing.abort(new ReleasedError(this.name));
  }

  #fail(message: string, byteOffset?: number, cause?: unknown): IoError {
    return new IoError({ source: this.name, message, ...(byteOffset === undefined ? {} : { byteOffset }) }, { cause });
  }

  #signalOf(signal: AbortSignal | undefined): AbortSignal {
    return AbortSignal.any([this.#closing.signal, this.#options.signal, signal].filter((one) => one !== undefined));
  }

  async #withRetries<T>(
    attempt: () => Promise<T>,
    progress: () => number,
    byteOffset: number | undefined,
    signal: AbortSignal,
  ): Promise<T> {
    try {
      return await retry(attempt, progress, this.#retries, signal);
    } catch (error) {
      if (!(error instanceof TransientError)) throw error;
      throw this.#fail(error.message, byteOffset, error.cause);
    }
  }

  /** Sends one request; the caller must read or cancel the body. */
  async #send(init: { method?: string; range?: string }, signal: AbortSignal): Promise<Response> {
    signal.throwIfAborted();
    const request = this.#options.fetch ?? fetch;
    let response: Response;
    try {
      response = await request(this.name, {
        method: init.method ?? 'GET',
        headers: { ...this.#options.headers, ...(init.range === undefined ? {} : { Range: init.range }) },
        signal,
      });
    } catch (error) {
      signal.throwIfAborted();
      throw new TransientError(`no response: ${messageOf(error)}`, 0, { cause: error });
    }
    if (!isTransient(response.status)) return response;
    await discard(response);
    throw new TransientError(`HTTP status ${response.status}`, retryAfterMs(response.headers));
  }

  async #probe(signal: AbortSignal): Promise<Probe> {
    const response = await this.#send({ range: 'bytes=0-0' }, signal);
    const { status, headers } = response;
    if (response.ok && isHtml(headers)) {
      await discard(response);
      throw this.#pageError();
    }
    const validator = validatorOf(headers);
    const range = contentRangeOf(headers);
    if (status === 206) {
      const first = await this.#firstBytes(response, 1, signal);
      if (first[0] === lessThan) await this.#refusePage(signal);
      if (range?.sizeBytes !== undefined) return { sizeBytes: range.sizeBytes, validator };
      const head = await this.#send({ method: 'HEAD' }, signal);
      const length = Number(head.headers.get('content-length') ?? Number.NaN);
      if (head.ok && Number.isSafeInteger(length)) return { sizeBytes: length, validator };
      throw this.#fail('the server does not report the size of the file (neither Content-Range nor Content-Length)');
    }
    if (status === 200) {
      const whole = await this.#readWhole(response, signal);
      if (startsPage(whole.subarray(0, pageStartBytes))) throw this.#pageError();
      return { sizeBytes: whole.byteLength, validator, whole };
    }
    await discard(response);
    // an empty file has no first byte
    if (status === 416 && range?.sizeBytes === 0) return { sizeBytes: 0, validator };
    throw this.#fail(`HTTP status ${status}${reasonOf(status)}, expected 206`);
  }

  #pageError(): HtmlPageError {
    const message = 'the server answered with a page of HTML instead of the file, as if there were no such file';
    return new HtmlPageError({ source: this.name, message });
  }

  /** Rejects a page of HTML, for a file whose first byte is that of a page. */
  async #refusePage(signal: AbortSignal): Promise<void> {
    const response = await this.#send({ range: `bytes=0-${pageStartBytes - 1}` }, signal);
    if (startsPage(await this.#firstBytes(response, pageStartBytes, signal))) throw this.#pageError();
  }

  /** At most `limit` bytes of a body; the rest is not transferred. */
  async #firstBytes(response: Response, limit: number, signal: AbortSignal): Promise<Uint8Array> {
    const bytes = new Uint8Array(limit);
    let filled = 0;
    const take = (chunk: Uint8Array): boolean => {
      const part = chunk.subarray(0, limit - filled);
      bytes.set(part, filled);
      filled += part.byteLength;
      return filled < limit;
    };
    await readBody(response, take, signal);
    return bytes.subarray(0, filled);
  }

  /** The whole file, from a server that ignores `Range`. */
  async #readWhole(response: Response, signal: AbortSignal): Promise<Uint8Array> {
    const { headers } = response;
    // the length of a compressed body is not that of the file
    const isPlain = (headers.get('content-encoding') ?? 'identity') === 'identity';
    const announced = isPlain ? headers.get('content-length') : null;
    const chunks: Uint8Array[] = [];
    let numBytes = Number(announced ?? 0);
    if (numBytes <= MAX_WHOLE_BYTES) {
      numBytes = 0;
      const take = (chunk: Uint8Array): boolean => {
        chunks.push(chunk);
        numBytes += chunk.byteLength;
        return numBytes <= MAX_WHOLE_BYTES;
      };
      await readBody(response, take, signal);
    } else await discard(response);
    if (numBytes > MAX_WHOLE_BYTES) {
      throw this.#fail(
        `the server does not support range requests, which a file of more than ${MAX_WHOLE_BYTES} bytes needs ` +
          `(status 200 with the whole file${announced === null ? '' : ` of ${announced} bytes`}, expected 206)`,
      );
    }
    if (announced !== null && numBytes !== Number(announced)) {
      throw new TransientError(`response too short, expected ${announced} bytes, got ${numBytes}`);
    }
    const whole = new Uint8Array(numBytes);
    let at = 0;
    for (const chunk of chunks) {
      whole.set(chunk, at);
      at += chunk.byteLength;
    }
    return whole;
  }

  /** Fills `target` from one response; `onBytes` is called with the number of bytes received. */
  async #readOnce(
    byteOffset: number,
    target: Uint8Array,
    onBytes: (numBytes: number) => void,
    signal: AbortSignal,
  ): Promise<void> {
    const last = byteOffset + target.byteLength - 1;
    const response = await this.#send({ range: `bytes=${byteOffset}-${last}` }, signal);
    const problem = this.#problemOf(response, byteOffset, last);
    if (problem !== undefined) {
      await discard(response);
      throw this.#fail(problem, byteOffset);
    }
    const reader = response.body?.getReader();
    if (reader === undefined) throw new TransientError('response without a body');
    let numRead = 0;
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        if (numRead + value.byteLength > target.byteLength) {
          throw this.#fail(`response too long, expected ${target.byteLength} bytes`, byteOffset);
        }
        target.set(value, numRead);
        numRead += value.byteLength;
        onBytes(value.byteLength);
      }
    } catch (error) {
      if (error instanceof IoError) {
        await reader.cancel().catch(() => undefined);
        throw error;
      }
      signal.throwIfAborted();
      throw new TransientError(`connection lost after ${numRead} bytes: ${messageOf(error)}`, 0, { cause: error });
    }
    if (numRead < target.byteLength) {
      throw new TransientError(`response too short, expected ${target.byteLength} bytes, got ${numRead}`);
    }
  }

  /** Why a response is not the requested range of the file that was opened. */
  #problemOf({ status, headers }: Response, first: number, last: number): string | undefined {
    if (status === 200) return 'the server stopped supporting ranges (status 200, expected 206)';
    if (status !== 206) return `HTTP status ${status}${reasonOf(status)}, expected 206`;
    const now = validatorOf(headers);
    if (this.#validator !== undefined && now !== undefined && now !== this.#validator) {
      return `the file changed while it was read, expected version ${this.#validator}, got ${now}`;
    }
    const encoding = headers.get('content-encoding') ?? 'identity';
    if (encoding !== 'identity') return `expected plain bytes, got Content-Encoding ${encoding}`;
    const range = contentRangeOf(headers);
    if (range === undefined || range.first !== first || range.last !== last) {
      const found = headers.get('content-range') ?? 'none';
      return `wrong range, expected bytes ${first}-${last}, got Content-Range ${found}`;
    }
    if (range.sizeBytes === undefined || range.sizeBytes === this.#sizeBytes) return undefined;
    return `the file changed while it was read, expected ${this.#sizeBytes} bytes, got ${range.sizeBytes}`;
  }
}

/** Passes the chunks of a body to `take` until it returns false or the body ends. */
async function readBody(response: Response, take: (chunk: Uint8Array) => boolean, signal: AbortSignal): Promise<void> {
  const reader = response.body?.getReader();
  if (reader === undefined) return;
  let numRead = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      numRead += value.byteLength;
      if (!take(value)) break;
    }
  } catch (error) {
    signal.throwIfAborted();
    throw new TransientError(`connection lost after ${numRead} bytes: ${messageOf(error)}`, 0, { cause: error });
  }
  await reader.cancel().catch(() => undefined);
}

async function discard(response: Response): Promise<void> {
  await response.body?.cancel().catch(() => undefined);
}

function reasonOf(status: number): string {
  if (status === 401 || status === 403) return ' (access denied)';
  if (status === 404 || status === 410) return ' (no such file)';
  if (status === 416) return ' (range not satisfiable: the file is shorter than it was)';
  return '';
}
