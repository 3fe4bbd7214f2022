/** Requests that the server makes itself, such as the lines of a batch: they pass its handlers without a connection. */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { FastifyInstance, FastifyRequest } from 'fastify';

/** The client on whose behalf the server makes a request. */
export interface InternalCaller {
  /** Hash of the API key, if there are keys. */
  readonly owner: string | undefined;
  /** Called when the prompt was computed. */
  readonly onPrompt?: (() => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface InternalRequest {
  /** Path of a POST route, such as `/v1/chat/completions`. */
  readonly path: string;
  /** JSON. */
  readonly body: string;
  readonly signal?: AbortSignal;
  /** The owner of the request; owners do not share prefixes in the KV cache. Default: none, so prefixes are shared. */
  readonly owner?: string;
  /** Called when the prompt was computed, of a request that generates. */
  readonly onPrompt?: () => void;
}

export interface InternalResponse {
  readonly status: number;
  readonly requestId: string;
  /** JSON. */
  readonly body: string;
}

export class InternalCalls {
  readonly #storage = new AsyncLocalStorage<InternalCaller>();
  readonly #callers = new WeakMap<FastifyRequest, InternalCaller>();

  /**
   * Recognizes the requests; registered before any other hook. A header could be forged, but the context of a call
   * cannot.
   */
  register(app: FastifyInstance): void {
    app.addHook('onRequest', async (request, reply) => {
      const caller = this.#storage.getStore();
      if (caller === undefined) return;
      this.#callers.set(request, caller);
      const disconnect = (): void => void reply.raw.destroy();
      caller.signal?.addEventListener('abort', disconnect);
      reply.raw.once('close', () => caller.signal?.removeEventListener('abort', disconnect));
    });
  }

  /** Undefined for a request of a client. */
  callerOf(request: FastifyRequest): InternalCaller | undefined {
    return this.#callers.get(request);
  }

  /** @throws the reason of the signal */
  async call(
    app: FastifyInstance,
    { path, body, signal, onPrompt, owner }: InternalRequest,
  ): Promise<InternalResponse> {
    signal?.throwIfAborted();
    const headers = { 'content-type': 'application/json' };
    const request = { method: 'POST' as const, url: path, headers, payload: body };
    const answer = await this.#storage
      .run({ owner, onPrompt, signal }, async () => app.inject(request))
      .catch((error: unknown) => {
        throw signal?.aborted === true ? signal.reason : error;
      });
    return { status: answer.statusCode, requestId: String(answer.headers['x-request-id']), body: answer.body };
  }
}
