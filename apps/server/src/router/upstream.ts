/** A server behind the router: its connections, its state and its load. */
import { Agent as HttpAgent, request as httpRequest, type ClientRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { Readable } from 'node:stream';
import type { Candidate } from './choose-upstream.js';
import type { UpstreamState } from './options.js';

export type RequestHeaders = Readonly<Record<string, string | string[]>>;

export interface UpstreamRequest {
  readonly method: string;
  /** With the query string. */
  readonly path: string;
  readonly headers: RequestHeaders;
  /** A stream can be sent once. */
  readonly body?: Uint8Array | Readable | undefined;
  /** Whether the server may get it twice. Default: yes, unless the body is a stream. */
  readonly isRepeatable?: boolean | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** What a health check found. */
export interface Report {
  readonly numRunning: number;
  readonly numWaiting: number;
  readonly numSlots: number | undefined;
}

/** The request used a connection that the server had closed in the meantime. */
class StaleConnectionError extends Error {
  override readonly name: string = 'StaleConnectionError';
}

export class Upstream implements Candidate {
  readonly id: string;
  readonly #url: URL;
  readonly #agent: HttpAgent;
  readonly #active = new Set<ClientRequest>();
  state: UpstreamState = 'down';
  /** Ids that requests may name; undefined: unknown. */
  models: ReadonlySet<string> | undefined;
  numSlots = 1;
  numWaiting = 0;
  /** Requests of other clients at the last report. */
  #numOthers = 0;

  constructor(url: URL) {
    this.id = url.origin;
    this.#url = url;
    const options = { keepAlive: true, scheduling: 'lifo' as const };
    this.#agent = url.protocol === 'https:' ? new HttpsAgent(options) : new HttpAgent(options);
  }

  /** Requests that this router sent and that have not ended. */
  get numInFlight(): number {
    return this.#active.size;
  }

  get load(): number {
    return this.#active.size + this.#numOthers;
  }

  /** @param numInFlightBefore those when the report was asked for */
  note({ numRunning, numWaiting, numSlots }: Report, numInFlightBefore: number): void {
    const numOwn = Math.max(numInFlightBefore, this.numInFlight); // requests may have ended or begun in between
    this.#numOthers = Math.max(0, numRunning + numWaiting - numOwn);
    this.numWaiting = numWaiting;
    this.numSlots = Math.max(1, numSlots ?? 1);
  }

  /**
   * Sends a request, once more on a new connection if the server had closed an idle one; what must not be sent twice gets a new connection
   * at once. It counts as load until its response has ended.
   * @param isCounted false for requests of the router itself
   * @throws the error of the connection, or the reason of the signal
   */
  async send(request: UpstreamRequest, isCounted = true): Promise<IncomingMessage> {
    const { body, isRepeatable = true } = request;
    const isOnce = !isRepeatable || body instanceof Readable;
    try {
      return await this.#sendOnce(request, isCounted, isOnce ? false : this.#agent);
    } catch (error) {
      if (!(error instanceof StaleConnectionError)) throw error;
      return this.#sendOnce(request, isCounted, false);
    }
  }

  #sendOnce(
    { method, path, headers, body, signal }: UpstreamRequest,
    isCounted: boolean,
    agent: HttpAgent | false,
  ): Promise<IncomingMessage> {
    return new Promise((resolve, reject) => {
      const secure = this.#url.protocol === 'https:';
      const options = { method, path, headers: { ...headers, host: this.#url.host }, agent };
      const request = (secure ? httpsRequest : httpRequest)(this.#url, options as object);
      if (isCounted) this.#active.add(request);
      const abort = (): void => void request.destroy(signal?.reason as Error);
      signal?.addEventListener('abort', abort, { once: true });
      request.once('close', () => {
        this.#active.delete(request);
        signal?.removeEventListener('abort', abort);
      });
      request.once('response', resolve);
      request.on('error', (error: NodeJS.ErrnoException) => {
        const isStale = request.reusedSocket && (error.code === 'ECONNRESET' || error.code === 'EPIPE');
        reject(isStale && signal?.aborted !== true ? new StaleConnectionError(error.message, { cause: error }) : error);
      });
      if (signal?.aborted === true) abort();
      else if (body === undefined || body instanceof Uint8Array) request.end(body);
      else body.on('error', (error) => request.destroy(error)).pipe(request);
    });
  }

  /** Ends what runs there: the server does not answer any more. */
  abandon(reason: string): void {
    for (const request of this.#active) request.destroy(new Error(reason));
  }

  close(): void {
    this.#agent.destroy();
  }
}
