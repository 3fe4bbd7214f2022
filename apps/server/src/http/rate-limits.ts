/** Rates per API key, as token buckets: a minute's worth may be used at once, and comes back evenly. */
import type { Rates } from '../options.js';
import { ApiError } from './api-error.js';

/** The state of one rate: a level that rises with time, up to what a minute allows. */
class Bucket {
  readonly #perMinute: number;
  #level: number;
  #updatedMs: number;

  constructor(perMinute: number, nowMs: number) {
    this.#perMinute = perMinute;
    this.#level = perMinute;
    this.#updatedMs = nowMs;
  }

  /** The level at a time, in requests or tokens; negative after more was taken than the bucket held. */
  levelAt(nowMs: number): number {
    const risen = this.#level + ((nowMs - this.#updatedMs) * this.#perMinute) / 60_000;
    this.#level = Math.min(this.#perMinute, risen);
    this.#updatedMs = nowMs;
    return this.#level;
  }

  take(amount: number, nowMs: number): void {
    this.#level = this.levelAt(nowMs) - amount;
  }

  /** Whole seconds until the level reaches an amount. */
  secondsUntil(amount: number, nowMs: number): number {
    return Math.max(1, Math.ceil(((amount - this.levelAt(nowMs)) * 60) / this.#perMinute));
  }
}

interface Buckets {
  readonly requests: Bucket | undefined;
  readonly tokens: Bucket | undefined;
}

export class RateLimiter {
  readonly #rates: Rates;
  readonly #now: () => number;
  /** By owner: as many as there are API keys. */
  readonly #buckets = new Map<string, Buckets>();

  /** @param now milliseconds of any origin */
  constructor(rates: Rates, now: () => number) {
    this.#rates = rates;
    this.#now = now;
  }

  /**
   * Counts a request.
   * @param owner what the rates belong to: a key, or all requests together
   * @returns headers that tell the client what remains, as in OpenAI's API
   * @throws {ApiError} 429 when a rate is used up
   */
  admit(owner: string): Record<string, string> {
    const { requests, tokens } = this.#bucketsOf(owner);
    const { requestsPerMinute, tokensPerMinute } = this.#rates;
    const nowMs = this.#now();
    if (requests !== undefined && requests.levelAt(nowMs) < 1) {
      throw rateExceeded('requests', requestsPerMinute as number, requests.secondsUntil(1, nowMs));
    }
    if (tokens !== undefined && tokens.levelAt(nowMs) <= 0) {
      throw rateExceeded('tokens', tokensPerMinute as number, tokens.secondsUntil(1, nowMs));
    }
    requests?.take(1, nowMs);
    return {
      ...headersOf('requests', requestsPerMinute, requests, nowMs),
      ...headersOf('tokens', tokensPerMinute, tokens, nowMs),
    };
  }

  /**
   * Takes the tokens of a request, whose number is known when it ends; later requests are rejected until the bucket has
   * refilled.
   */
  charge(owner: string, numTokens: number): void {
    this.#bucketsOf(owner).tokens?.take(numTokens, this.#now());
  }

  #bucketsOf(owner: string): Buckets {
    let buckets = this.#buckets.get(owner);
    if (buckets === undefined) {
      const { requestsPerMinute, tokensPerMinute } = this.#rates;
      const bucketOf = (rate: number | undefined): Bucket | undefined =>
        rate === undefined ? undefined : new Bucket(rate, this.#now());
      buckets = { requests: bucketOf(requestsPerMinute), tokens: bucketOf(tokensPerMinute) };
      this.#buckets.set(owner, buckets);
    }
    return buckets;
  }
}

function headersOf(
  unit: 'requests' | 'tokens',
  rate: number | undefined,
  bucket: Bucket | undefined,
  nowMs: number,
): Record<string, string> {
  if (rate === undefined || bucket === undefined) return {};
  return {
    [`x-ratelimit-limit-${unit}`]: String(rate),
    [`x-ratelimit-remaining-${unit}`]: String(Math.max(0, Math.floor(bucket.levelAt(nowMs)))),
  };
}

function rateExceeded(unit: string, rate: number, retryAfterSeconds: number): ApiError {
  const message = `The limit is ${rate} ${unit} per minute; try again in ${retryAfterSeconds} s`;
  return new ApiError({
    status: 429,
    type: 'rate_limit_error',
    message,
    code: 'rate_limit_exceeded',
    retryAfterSeconds,
  });
}
