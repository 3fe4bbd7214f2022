/** The `fetch` passed to the hub library: token, abort, errors with reasons, and validated range responses. */
import { HubError } from './error.node.js';

/** Options of `createHubFetch`. */
export interface HubFetchOptions {
  /** For error messages. */
  readonly repo: string;
  /** Without a trailing slash. */
  readonly endpoint: string;
  readonly accessToken: string | undefined;
  readonly fetch: typeof fetch;
  readonly signal: AbortSignal | undefined;
}

/**
 * Sends the token to the endpoint's own origin only (a redirect to a storage host loses it, by the rules of `fetch`),
 * and turns every failure into a `HubError`. A fired signal rejects with its reason.
 */
export function createHubFetch(options: HubFetchOptions): typeof fetch {
  const { repo, endpoint, accessToken, signal } = options;
  const { origin } = new URL(endpoint);
  return async (input, init) => {
    signal?.throwIfAborted();
    const url = new URL(input instanceof Request ? input.url : input);
    const headers = new Headers(init?.headers);
    if (accessToken !== undefined && url.origin === origin) headers.set('authorization', `Bearer ${accessToken}`);
    let response: Response;
    try {
      response = await options.fetch(url, { ...init, headers, ...(signal === undefined ? {} : { signal }) });
    } catch (cause) {
      signal?.throwIfAborted();
      throw new HubError(
        {
          source: repo,
          reason: 'network',
          message: `${url.host} cannot be reached: ${messageOf(cause)} (offline: true uses the cache)`,
        },
        { cause },
      );
    }
    if (!response.ok) {
      await response.body?.cancel().catch(() => undefined);
      throw statusError(repo, url, response, accessToken !== undefined);
    }
    return response;
  };
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
      const found = /^bytes (\d+)-(\d+)\/(\d+|\*)$/.exec(response.headers.get('content-range') ?? '');
      if (found === null || Number(found[1]) !== start) {
        await response.body.cancel();
        throw corrupt(
          `expected bytes starting at ${start}, got "${response.headers.get('content-range') ?? 'no range'}"`,
        );
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
