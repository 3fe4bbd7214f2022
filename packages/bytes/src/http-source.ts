/**
 * A URL as a source, by HTTP range requests (RFC 9110 §14). Every answer is checked: it must be the range that was
 * asked for, of the file that was opened. Transient failures are retried from the byte where they happened.
 */
import { IoError, ReleasedError } from '@winnow/tensor';
import type { ByteSource } from './byte-source.js';
import { contentRangeOf, isTransient, retryAfterMs, validatorOf } from './http-headers.js';
import { checkCount, checkRange, messageOf } from './range.js';

/** Options of `httpSource`. */
export interface HttpSourceOptions {
  /** Default: the global `fetch`. */
  readonly fetch?: typeof fetch;
  /** Sent with every request, for example `Authorization`. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Ends the opening and every later read. */
  readonly signal?: AbortSignal;
  /** How often one read may be resumed after a transient failure that brought no byte. Default 3. */
  readonly maxRetries?: number;
  /** Wait before the first retry; doubles with each. `Retry-After` is obeyed up to 30 s. Default 250. */
  readonly retryDelayMs?: number;
}

/** A server may ask for any wait; a longer one is better reported than sat out. */
const maxRetryAfterMs = 30_000;

/** A failure worth another attempt. */
class TransientError extends Error {
  readonly waitMs: number;

  constructor(message: string, waitMs = 0, options?: { cause?: unknown }) {
    super(message, options);
    this.waitMs = waitMs;
  }
}

/**
 * Opens `url` with a request for its first byte, which shows the size and whether the server can serve ranges.
 * Redirects are followed, by each request anew. Closing ends the reads in flight.
 * @throws {IoError} when the server does not answer, has no such file, or does not serve ranges
 */
export async function httpSource(url: string | URL, options: HttpSourceOptions = {}): Promise<ByteSource> {
  const name = String(url);
  const request = options.fetch ?? fetch;
  const maxRetries = options.maxRetries ?? 3;
  const retryDelayMs = options.retryDelayMs ?? 250;
  checkCount('maxRetries', maxRetries);
  checkCount('retryDelayMs', retryDelayMs);
  const closing = new AbortController();
  let open = true;

  const fail = (message: string, byteOffset?: number, cause?: unknown): IoError =>
    new IoError({ source: name, message, ...(byteOffset === undefined ? {} : { byteOffset }) }, { cause });

  const signalOf = (signal: AbortSignal | undefined): AbortSignal =>
    AbortSignal.any([closing.signal, options.signal, signal].filter((one) => one !== undefined));

  /** One request; its body, if any, is the caller's to read or cancel. */
  async function send(init: { method?: string; range?: string }, signal: AbortSignal): Promise<Response> {
    signal.throwIfAborted();
    let response: Response;
    try {
      response = await request(name, {
        method: init.method ?? 'GET',
        headers: { ...options.headers, ...(init.range === undefined ? {} : { Range: init.range }) },
        signal,
      });
    } catch (error) {
      signal.throwIfAborted();
      throw new TransientError(`no answer: ${messageOf(error)}`, 0, { cause: error });
    }
    if (isTransient(response.status)) {
      await discard(response);
      throw new TransientError(
        `HTTP status ${response.status}`,
        Math.min(retryAfterMs(response.headers), maxRetryAfterMs),
      );
    }
    return response;
  }

  /** Repeats `attempt` while it fails transiently and does not get further. */
  async function withRetries<T>(
    attempt: () => Promise<T>,
    progress: () => number,
    byteOffset: number | undefined,
    signal: AbortSignal,
  ): Promise<T> {
    let numFailures = 0;
    let last = progress();
    for (;;) {
      try {
        return await attempt();
      } catch (error) {
        if (!(error instanceof TransientError)) throw error;
        numFailures = progress() > last ? 1 : numFailures + 1;
        last = progress();
        if (numFailures > maxRetries) {
          throw fail(`${error.message}, given up after ${numFailures} attempts`, byteOffset, error.cause ?? error);
        }
        await wait(Math.max(error.waitMs, retryDelayMs * 2 ** (numFailures - 1)), signal);
      }
    }
  }

  async function probe(signal: AbortSignal): Promise<{ sizeBytes: number; validator: string | undefined }> {
    const response = await send({ range: 'bytes=0-0' }, signal);
    await discard(response);
    const validator = validatorOf(response.headers);
    const range = contentRangeOf(response.headers);
    if (response.status === 206) {
      if (range?.sizeBytes !== undefined) return { sizeBytes: range.sizeBytes, validator };
      const head = await send({ method: 'HEAD' }, signal);
      const length = Number(head.headers.get('content-length') ?? Number.NaN);
      if (head.ok && Number.isSafeInteger(length)) return { sizeBytes: length, validator };
      throw fail('the server does not say how large the file is (neither Content-Range nor Content-Length)');
    }
    // an empty file has no first byte
    if (response.status === 416 && range?.sizeBytes === 0) return { sizeBytes: 0, validator };
    if (response.status === 200) {
      if (response.headers.get('content-length') === '0') return { sizeBytes: 0, validator };
      throw fail('the server does not support range requests (answered 200 with the whole file, expected 206)');
    }
    throw fail(`HTTP status ${response.status}${reasonOf(response.status)}, expected 206`);
  }

  const openSignal = signalOf(undefined);
  const { sizeBytes, validator } = await withRetries(
    () => probe(openSignal),
    () => 0,
    undefined,
    openSignal,
  );

  /** Fills `target` from one answer and returns how far it came through `onBytes`. */
  async function readOnce(
    byteOffset: number,
    target: Uint8Array,
    onBytes: (numBytes: number) => void,
    signal: AbortSignal,
  ): Promise<void> {
    const last = byteOffset + target.byteLength - 1;
    const response = await send({ range: `bytes=${byteOffset}-${last}` }, signal);
    const refuse = async (message: string): Promise<never> => {
      await discard(response);
      throw fail(message, byteOffset);
    };
    if (response.status === 200) await refuse('the server stopped serving ranges (answered 200, expected 206)');
    if (response.status !== 206) {
      await refuse(`HTTP status ${response.status}${reasonOf(response.status)}, expected 206`);
    }
    const now = validatorOf(response.headers);
    if (validator !== undefined && now !== undefined && now !== validator) {
      await refuse(`the file changed while it was read, expected version ${validator}, got ${now}`);
    }
    const encoding = response.headers.get('content-encoding') ?? 'identity';
    if (encoding !== 'identity') await refuse(`expected plain bytes, got Content-Encoding ${encoding}`);
    const range = contentRangeOf(response.headers);
    if (range === undefined || range.first !== byteOffset || range.last !== last) {
      const found = response.headers.get('content-range') ?? 'none';
      await refuse(`wrong range, expected bytes ${byteOffset}-${last}, got Content-Range ${found}`);
    }
    if (range?.sizeBytes !== undefined && range.sizeBytes !== sizeBytes) {
      await refuse(`the file changed while it was read, expected ${sizeBytes} bytes, got ${range.sizeBytes}`);
    }
    let numRead = 0;
    const reader = response.body?.getReader();
    if (reader === undefined) throw new TransientError('answer without a body');
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        if (numRead + value.byteLength > target.byteLength) {
          throw fail(`answer too long, expected ${target.byteLength} bytes`, byteOffset);
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
      throw new TransientError(`answer too short, expected ${target.byteLength} bytes, got ${numRead}`);
    }
  }

  return {
    name,
    sizeBytes,
    async read(byteOffset, target, readOptions) {
      if (!open) throw new ReleasedError(name);
      checkRange(name, sizeBytes, byteOffset, target.byteLength);
      const signal = signalOf(readOptions?.signal);
      signal.throwIfAborted();
      if (target.byteLength === 0) return;
      let filled = 0;
      await withRetries(
        () => readOnce(byteOffset + filled, target.subarray(filled), (numBytes) => (filled += numBytes), signal),
        () => filled,
        byteOffset,
        signal,
      );
    },
    async close() {
      if (!open) return;
      open = false;
      closing.abort(new ReleasedError(name));
    },
  };
}

async function discard(response: Response): Promise<void> {
  await response.body?.cancel().catch(() => undefined);
}

function wait(delayMs: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = (): void => {
      clearTimeout(timer);
      reject(signal.reason as Error);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', stop);
      resolve();
    }, delayMs);
    if (signal.aborted) stop();
    else signal.addEventListener('abort', stop, { once: true });
  });
}

function reasonOf(status: number): string {
  if (status === 401 || status === 403) return ' (access refused)';
  if (status === 404 || status === 410) return ' (no such file)';
  if (status === 416) return ' (range not satisfiable: the file is shorter than it was)';
  return '';
}
