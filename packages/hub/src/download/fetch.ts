/** The `fetch` passed to the hub library: token, abort, errors with reasons, and validated range responses. */
import { HubError } from './error.js';
import { hubLimits, type HubLimits } from './limits.js';

/** Options of `createHubFetch`. */
export interface HubFetchOptions {
  /** For error messages. */
  readonly repo: string;
  /** Without a trailing slash. */
  readonly endpoint: string;
  readonly accessToken: string | undefined;
  readonly fetch: typeof fetch;
  readonly signal: AbortSignal | undefined;
  /** How to use the cache where the hub cannot be reached. */
  readonly offlineHint: string;
  /** Default: `hubLimits`. */
  readonly limits?: HubLimits;
}

/**
 * Sends the token only to the origin of the endpoint (by the rules of `fetch`, a redirect to a storage host drops it), and
 * converts every failure to a `HubError`. An aborted signal rejects with its reason. A response fails when its headers take
 * too long, or when its body stalls.
 */
export function createHubFetch(options: HubFetchOptions): typeof fetch {
  // called as a plain function: in browsers, `fetch` throws as a method of another object
  const { repo, endpoint, accessToken, signal, fetch: request } = options;
  const { silenceMs } = options.limits ?? hubLimits;
  const { origin } = new URL(endpoint);
  return async (input, init) => {
    signal?.throwIfAborted();
    const url = new URL(input instanceof Request ? input.url : input);
    const headers = new Headers(init?.headers);
    if (accessToken !== undefined && url.origin === origin) headers.set('authorization', `Bearer ${accessToken}`);
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(silenceError(silenceMs)), silenceMs);
    let response: Response;
    try {
      const either = signal === undefined ? late.signal : AbortSignal.any([signal, late.signal]);
      response = await request(url, { ...init, headers, signal: either });
    } catch (cause) {
      signal?.throwIfAborted();
      throw new HubError(
        {
          source: repo,
          reason: 'network',
          message: `${url.host} cannot be reached: ${messageOf(cause)} (${options.offlineHint})`,
        },
        { cause },
      );
    } finally {
      clearTimeout(timer);
    }
    if (!response.ok) {
      await response.body?.cancel().catch(() => undefined);
      throw statusError(repo, url, response, accessToken !== undefined);
    }
    return response.body === null ? response : withBody(response, endSilence(response.body, silenceMs));
  };
}

/** Wraps a `fetch` for short JSON responses: each is read completely, within limits of size and time. */
export function createAnswerFetch(request: typeof fetch, repo: string, limits: HubLimits = hubLimits): typeof fetch {
  const { answerBytes, answerMs } = limits;
  return async (input, init) => {
    const response = await request(input, init);
    const { host } = new URL(input instanceof Request ? input.url : input);
    const refuse = (message: string): HubError => new HubError({ source: repo, reason: 'server', message });
    const reader = response.body?.getReader();
    const chunks: Uint8Array<ArrayBuffer>[] = [];
    let numBytes = 0;
    let isLate = false; // no clock is read: a timer may end a fraction of a millisecond early by another one
    const timer = setTimeout(() => {
      isLate = true;
      void reader?.cancel().catch(() => undefined);
    }, answerMs);
    try {
      for (;;) {
        const next = await reader?.read();
        if (isLate) throw refuse(`the answer of ${host} takes over ${seconds(answerMs)}`);
        if (next?.value === undefined) break;
        numBytes += next.value.byteLength;
        if (numBytes > answerBytes) throw refuse(`the answer of ${host} is longer than ${answerBytes} bytes`);
        chunks.push(next.value);
      }
    } catch (cause) {
      void reader?.cancel().catch(() => undefined);
      if (cause instanceof SilenceError) {
        throw new HubError({ source: repo, reason: 'network', message: `${host}: ${cause.message}` }, { cause });
      }
      throw cause;
    } finally {
      clearTimeout(timer);
    }
    return withBody(response, new Blob(chunks).stream());
  };
}

/** A connection has stalled. */
class SilenceError extends Error {}

function silenceError(silenceMs: number): SilenceError {
  return new SilenceError(`no bytes for ${seconds(silenceMs)}`);
}

function seconds(ms: number): string {
  return `${ms / 1000} s`;
}

function withBody({ status, statusText, headers }: Response, body: ReadableStream<Uint8Array<ArrayBuffer>>): Response {
  return new Response(body, { status, statusText, headers });
}

/** Passes the bytes of a body on; fails when none arrive for `silenceMs`. */
function endSilence(
  body: ReadableStream<Uint8Array<ArrayBuffer>>,
  silenceMs: number,
): ReadableStream<Uint8Array<ArrayBuffer>> {
  const reader = body.getReader();
  return new ReadableStream<Uint8Array<ArrayBuffer>>(
    {
      async pull(controller) {
        const { promise: silence, reject } = Promise.withResolvers<never>();
        const timer = setTimeout(() => reject(silenceError(silenceMs)), silenceMs);
        try {
          const { value } = await Promise.race([reader.read(), silence]);
          if (value === undefined) controller.close();
          else controller.enqueue(value);
        } catch (error) {
          void reader.cancel().catch(() => undefined); // closes the connection
          throw error;
        } finally {
          clearTimeout(timer);
        }
      },
      cancel: (reason) => reader.cancel(reason),
    },
    { highWaterMark: 0 }, // the time counts only while a reader waits for bytes
  );
}

/**
 * Wraps a `fetch` for one file: a range request gets exactly its range. When a server ignores `Range` and sends the
 * whole file, the bytes before the range are skipped.
 */
export function createRangeFetch(
  request: typeof fetch,
  file: { readonly source: string; readonly sizeBytes: number },
): typeof fetch {
  const corrupt = (message: string): HubError => new HubError({ source: file.source, reason: 'corrupt', message });
  return async (input, init) => {
    const asked = /^bytes=(\d+)-/.exec(new Headers(init?.headers).get('range') ?? '');
    const start = Number(asked?.[1] ?? 0);
    const response = await request(input, init);
    if (response.body === null) throw corrupt(`the response (status ${response.status}) has no body`);
    if (response.status === 206) {
      const range = response.headers.get('content-range');
      // a storage host may hide the header from pages of other origins; the hash of the whole file is checked anyway
      if (range === null) return response;
      const found = /^bytes (\d+)-(\d+)\/(\d+|\*)$/.exec(range);
      if (found === null || Number(found[1]) !== start) {
        await response.body.cancel();
        throw corrupt(`expected bytes starting at ${start}, got "${range}"`);
      }
      if (found[3] !== '*' && Number(found[3]) !== file.sizeBytes) {
        await response.body.cancel();
        throw corrupt(`expected ${file.sizeBytes} bytes as listed, the server has ${found[3]}`);
      }
      return response;
    }
    if (response.status !== 200) {
      await response.body.cancel();
      throw corrupt(`unexpected status ${response.status}`);
    }
    return start === 0 ? response : new Response(response.body.pipeThrough(skipBytes(start)));
  };
}

function skipBytes(count: number): TransformStream<Uint8Array, Uint8Array> {
  let left = count;
  return new TransformStream({
    transform(chunk, controller) {
      const skipped = Math.min(left, chunk.byteLength);
      left -= skipped;
      if (skipped < chunk.byteLength) controller.enqueue(chunk.subarray(skipped));
    },
  });
}

function statusError(repo: string, url: URL, response: Response, hasToken: boolean): HubError {
  const { status } = response;
  const errorCode = response.headers.get('x-error-code') ?? '';
  const fail = (reason: HubError['reason'], message: string): HubError =>
    new HubError({ source: repo, reason, statusCode: status, message: `${message} (${status} ${url.pathname})` });
  if (errorCode === 'GatedRepo') {
    return fail('gated', 'the repository is gated: request access on its page and pass an access token');
  }
  if (status === 404 || errorCode === 'RepoNotFound') {
    if (errorCode === 'RevisionNotFound') return fail('not-found', 'the repository has no such revision');
    if (errorCode === 'EntryNotFound') return fail('not-found', 'the repository has no such file');
    return fail('not-found', `no such repository${hasToken ? '' : ', or a private one that needs an access token'}`);
  }
  if (status === 401 || status === 403) {
    return fail('unauthorized', hasToken ? 'the access token was rejected' : 'an access token is required');
  }
  if (status === 429) return fail('server', 'too many requests, try again later');
  return fail('server', 'the hub returned an error');
}

export function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? `${error.message} (${error.cause.message})` : error.message;
}
