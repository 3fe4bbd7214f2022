/** The slots of a model: limits running and waiting requests and rejects the rest. */
import { ApiError, shuttingDown } from '../http/api-error.js';

export type SlotState = 'idle' | 'prompt' | 'generating' | 'embedding' | 'reranking' | 'blocked';

/** The state of a slot. Numbers only: prompts and answers are private. */
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
  /** Passes the slot to the next waiter. May be called more than once. */
  release(): void;
}

export interface SlotsOptions {
  readonly numSlots: number;
  readonly maxQueued: number;
  readonly queueTimeoutMs: number;
  readonly now: () => number;
  /** Called when a slot was released. */
  readonly onRelease?: () => void;
}

interface Waiter {
  readonly admit: (index: number) => void;
  readonly refuse: (error: unknown) => void;
  readonly isPatient: boolean;
}

/** Weight of the latest request in the moving average of durations, from which `Retry-After` is estimated. */
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
   * Waits for a free slot.
   * @param isPatient lets all other requests go first, and waits without a time limit
   * @throws {ApiError} 429 when the queue is full, 503 on timeout or shutdown
   * @throws the signal's reason
   */
  async acquire(requestId: string, signal: AbortSignal, isPatient = false): Promise<Lease> {
    if (this.#isClosed) throw shuttingDown(1);
    signal.throwIfAborted();
    const free = this.#waiting.size > 0 ? -1 : this.#activities.indexOf(undefined);
    // a waiter admitted from the queue finds its slot reserved
    const index = free >= 0 ? free : await this.#wait(signal, isPatient);
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
        this.#options.onRelease?.();
      },
    };
  }

  /** Rejects waiting and new requests; running requests keep their slots. */
  close(): void {
    this.#isClosed = true;
    for (const waiter of this.#waiting) waiter.refuse(shuttingDown(1));
  }

  #wait(signal: AbortSignal, isPatient: boolean): Promise<number> {
    const { maxQueued, queueTimeoutMs } = this.#options;
    const numOthers = [...this.#waiting].filter((waiter) => !waiter.isPatient).length;
    if (!isPatient && numOthers >= maxQueued) {
      throw new ApiError({
        status: 429,
        type: 'rate_limit_error',
        message: `All slots are busy and ${numOthers} requests are waiting`,
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
        isPatient,
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
      const refuseLate = (): void => {
        const message = `No slot became free within ${queueTimeoutMs / 1000} seconds`;
        const retryAfterSeconds = this.#retrySeconds();
        waiter.refuse(new ApiError({ status: 503, message, code: 'queue_timeout', retryAfterSeconds }));
      };
      const timer = isPatient ? undefined : setTimeout(refuseLate, queueTimeoutMs);
      signal.addEventListener('abort', onAbort);
      this.#waiting.add(waiter);
    });
  }

  /** Between `admit` and the resumption of the waiter, the slot must not appear free. */
  #admitNext(index: number): void {
    const waiting = [...this.#waiting];
    const next = waiting.find(({ isPatient }) => !isPatient) ?? waiting[0];
    if (next === undefined) return;
    this.#activities[index] = reserved;
    next.admit(index);
  }

  /** Estimated time until the requests ahead have been served. */
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
