/** The places of a model: so many requests run at a time, so many wait in line, the others are sent away. */
import { ApiError, shuttingDown } from './api-error.js';

export type SlotState = 'idle' | 'prompt' | 'generating' | 'embedding' | 'blocked';

/** What a slot is busy with. Numbers only: prompts and answers are nobody else's business. */
export interface SlotActivity {
  readonly requestId: string;
  readonly startedMs: number;
  state: SlotState;
  promptTokens: number;
  processedTokens: number;
  generatedTokens: number;
}

export interface Lease {
  readonly activity: SlotActivity;
  /** Gives the slot to the next in line. May be called more than once. */
  release(): void;
}

export interface SlotsOptions {
  readonly numSlots: number;
  readonly maxQueued: number;
  readonly queueTimeoutMs: number;
  readonly now: () => number;
}

interface Waiter {
  readonly admit: (index: number) => void;
  readonly refuse: (error: unknown) => void;
}

/** How much the latest request counts in the mean duration that `Retry-After` is estimated from. */
const newestShare = 0.2;
const maxRetrySeconds = 60;

export class Slots {
  readonly #options: SlotsOptions;
  readonly #activities: (SlotActivity | undefined)[];
  readonly #waiting = new Set<Waiter>();
  #meanMs = 1000;
  #isClosed = false;

  constructor(options: SlotsOptions) {
    this.#options = options;
    this.#activities = Array.from({ length: options.numSlots });
  }

  get activities(): readonly (SlotActivity | undefined)[] {
    return this.#activities;
  }

  get numQueued(): number {
    return this.#waiting.size;
  }

  get numRunning(): number {
    return this.#activities.filter((activity) => activity !== undefined).length;
  }

  /**
   * A slot, as soon as one is free.
   * @throws {ApiError} 429 when the line is full, 503 when it took too long or the server closes
   * @throws the signal's reason
   */
  async acquire(requestId: string, signal: AbortSignal): Promise<Lease> {
    if (this.#isClosed) throw shuttingDown(1);
    signal.throwIfAborted();
    const free = this.#waiting.size > 0 ? -1 : this.#activities.indexOf(undefined);
    // whoever is admitted from the line finds the slot taken for it
    const index = free >= 0 ? free : await this.#wait(signal);
    const { now } = this.#options;
    const activity: SlotActivity = {
      requestId,
      startedMs: now(),
      state: 'prompt',
      promptTokens: 0,
      processedTokens: 0,
      generatedTokens: 0,
    };
    this.#activities[index] = activity;
    return {
      activity,
      release: () => {
        if (this.#activities[index] !== activity) return;
        this.#meanMs += newestShare * (now() - activity.startedMs - this.#meanMs);
        this.#activities[index] = undefined;
        this.#admitNext(index);
      },
    };
  }

  /** Refuses whoever waits and whoever comes; running requests keep their slots. */
  close(): void {
    this.#isClosed = true;
    for (const waiter of this.#waiting) waiter.refuse(shuttingDown(1));
  }

  #wait(signal: AbortSignal): Promise<number> {
    const { maxQueued, queueTimeoutMs } = this.#options;
    if (this.#waiting.size >= maxQueued) {
      throw new ApiError({
        status: 429,
        type: 'rate_limit_error',
        message: `All slots are busy and ${this.#waiting.size} requests wait already`,
        code: 'queue_full',
        retryAfterSeconds: this.#retrySeconds(),
      });
    }
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        clearTimeout(timer);
        signal.removeEventListener('abort', onAbort);
        this.#waiting.delete(waiter);
      };
      const waiter: Waiter = {
        admit: (index) => {
          leave();
          resolve(index);
        },
        refuse: (error) => {
          leave();
          reject(error);
        },
      };
      const onAbort = (): void => waiter.refuse(signal.reason);
      const timer = setTimeout(() => {
        const message = `No slot became free within ${queueTimeoutMs / 1000} seconds`;
        const retryAfterSeconds = this.#retrySeconds();
        waiter.refuse(new ApiError({ status: 503, message, code: 'queue_timeout', retryAfterSeconds }));
      }, queueTimeoutMs);
      signal.addEventListener('abort', onAbort);
      this.#waiting.add(waiter);
    });
  }

  /** Between `admit` and the moment the waiter goes on, the slot must not look free. */
  #admitNext(index: number): void {
    const [next] = this.#waiting;
    if (next === undefined) return;
    this.#activities[index] = reserved;
    next.admit(index);
  }

  /** When those before have had their turn, as things went so far. */
  #retrySeconds(): number {
    const rounds = Math.ceil((this.#waiting.size + 1) / this.#activities.length);
    return Math.min(maxRetrySeconds, Math.max(1, Math.ceil((rounds * this.#meanMs) / 1000)));
  }
}

const reserved: SlotActivity = Object.freeze({
  requestId: '',
  startedMs: 0,
  state: 'prompt',
  promptTokens: 0,
  processedTokens: 0,
  generatedTokens: 0,
});
