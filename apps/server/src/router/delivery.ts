/** Sends one request to servers until one answers it: before the first token, another one takes over from a server that fails. */
import type { IncomingMessage } from 'node:http';
import { ApiError } from '../http/api-error.js';
import type { RoutedCall } from './call.js';
import { lostTwice, mayBeDone, noUpstream, upstreamLost } from './errors.js';
import { readWhole } from './read-whole.js';
import { syntaxOf, type StreamEnd } from './stream-formats.js';
import type { Upstream } from './upstream.js';
import { hasData, wholeEvents, type EventSyntax } from './whole-events.js';

/** The beginning of an answer that is held, so that another server can still take over. */
const maxHeldBytes = 2 ** 20;

/** Maximum number of servers that a request may crash: one that crashes servers must not crash all of them. */
const maxLost = 2;
/** Errors of connections that were never made. */
const unsentCodes = /^(ECONNREFUSED|EHOSTUNREACH|ENETUNREACH|ENOTFOUND|EAI_AGAIN|ETIMEDOUT)$/;

/** What a request needs from the router. */
export interface DeliveryHost {
  /** The next server to try. Undefined: none is left. */
  choose(tried: ReadonlySet<Upstream>): Upstream | undefined;
  /** Called when a server fails. Resolves when its state is known. */
  onFailure(upstream: Upstream, error: unknown): Promise<void>;
  /** Called for each answer that is passed on. */
  onAnswer(upstream: Upstream, response: IncomingMessage): void;
  /** Called when the stream of an answer breaks. */
  onBroken(upstream: Upstream): void;
}

/** An answer whose beginning has arrived. */
export interface Answer {
  readonly upstream: Upstream;
  readonly response: IncomingMessage;
  /** Undefined: no stream, and `bytes` are its beginning or all of it. */
  readonly syntax: EventSyntax | undefined;
  readonly bytes: readonly Uint8Array[];
  readonly hasMore: boolean;
}

export class Delivery {
  readonly #call: RoutedCall;
  readonly #host: DeliveryHost;
  readonly #signal: AbortSignal;
  readonly #tried = new Set<Upstream>();
  #refusal: Answer | undefined;
  #lastError: unknown;
  /** Servers that were lost while they had the request. */
  #numLost = 0;

  constructor(call: RoutedCall, host: DeliveryHost, signal: AbortSignal) {
    this.#call = call;
    this.#host = host;
    this.#signal = signal;
  }

  /**
   * @throws {ApiError} 503 when no server can be reached; 502 when two were lost, or when one was lost that may have
   *   carried out a request that must not be repeated
   * @throws the reason of the signal
   */
  async open(): Promise<Answer> {
    for (;;) {
      if (this.#numLost === maxLost) throw lostTwice(this.#lastError);
      const upstream = this.#host.choose(this.#tried);
      if (upstream === undefined) {
        if (this.#refusal !== undefined) return this.#refusal;
        if (!this.#call.isRepeatable && this.#numLost > 0) throw mayBeDone(this.#lastError);
        throw noUpstream('this request', this.#lastError);
      }
      this.#tried.add(upstream);
      try {
        const answer = await this.#ask(upstream);
        if (!isRefusal(answer)) {
          this.#host.onAnswer(upstream, answer.response);
          return answer;
        }
        this.#refusal = answer;
      } catch (error) {
        await this.#note(upstream, error);
      }
    }
  }

  /** The events of an answer, of this server or of others that take over before it has sent any. */
  async *events(first: Answer, end: StreamEnd): AsyncGenerator<Buffer, void, void> {
    let answer = first;
    let hasBegun = false;
    for (;;) {
      const { response, syntax = 'events', upstream } = answer;
      try {
        for await (const bytes of wholeEvents(response, syntax)) {
          if (!hasBegun && hasData(bytes, syntax)) {
            hasBegun = true;
            this.#call.body = undefined; // no other server gets it
          }
          end.note(bytes);
          yield bytes;
        }
        return;
      } catch (error) {
        this.#signal.throwIfAborted();
        if (hasBegun) {
          this.#host.onBroken(upstream);
          void this.#host.onFailure(upstream, error);
          throw upstreamLost(error);
        }
        await this.#note(upstream, error);
      }
      answer = await this.#reopen(syntax);
    }
  }

  /** Headers of a stream have been sent, so any other answer is an error within it. */
  async #reopen(syntax: EventSyntax): Promise<Answer> {
    const answer = await this.open();
    if (answer.syntax === syntax) return answer;
    answer.response.destroy();
    throw new ApiError({
      status: 502,
      message: `A server answered ${answer.response.statusCode}`,
      code: 'upstream_failed',
    });
  }

  async #ask(upstream: Upstream): Promise<Answer> {
    const { method, path, headers, body, isRepeatable } = this.#call;
    const response = await upstream.send({ method, path, headers, body, isRepeatable, signal: this.#signal });
    const syntax = syntaxOf(response);
    if (syntax !== undefined) return { upstream, response, syntax, bytes: [], hasMore: true };
    return { upstream, response, syntax, ...(await readWhole(response, maxHeldBytes)) };
  }

  /** @throws the reason of the signal */
  async #note(upstream: Upstream, error: unknown): Promise<void> {
    this.#signal.throwIfAborted();
    this.#lastError = error;
    if (!unsentCodes.test((error as NodeJS.ErrnoException).code ?? '')) this.#numLost++;
    await this.#host.onFailure(upstream, error);
  }
}

/**
 * The server is closing, overloaded or its queue is full: another one may have room. The rate limit of a client is no
 * reason to ask another server.
 */
function isRefusal({ response: { statusCode }, hasMore, bytes }: Answer): boolean {
  if (hasMore) return false;
  if (statusCode === 502 || statusCode === 503) return true;
  return statusCode === 429 && Buffer.concat(bytes).includes('requests are waiting'); // as the slots of our server say
}
