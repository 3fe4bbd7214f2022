/**
 * Streams of events or lines with backpressure. The next event is requested when the previous one is in the socket's buffer; a
 * client that reads nothing for too long is disconnected.
 */
import { Readable } from 'node:stream';
import type { ApiError } from './api-error.js';

/** How a protocol writes a stream. */
export interface StreamFormat {
  readonly contentType: string;
  /** What clients ignore. */
  readonly keepAlive: string;
  readonly lastEvent: (error: ApiError) => string;
}

/** Whole events or lines, as text or as UTF-8. */
export type StreamPart = string | Uint8Array;

export interface EventStreamOptions {
  /** Idle time after which `keepAlive` is sent. */
  readonly keepAliveMs: number;
  readonly keepAlive: string;
  /** How long the reader may stall. */
  readonly stallTimeoutMs: number;
  /** Called when the reader stalls or resumes. */
  readonly onBlocked: (isBlocked: boolean) => void;
  /** The last event of a stream that fails after it was opened. */
  readonly lastEvent: (error: unknown) => string;
}

export function streamHeaders({ contentType }: StreamFormat): Record<string, string> {
  return {
    'content-type': contentType,
    'cache-control': 'no-cache, no-transform',
    'x-accel-buffering': 'no', // makes nginx forward events immediately
  };
}

/** One event. */
export function eventOf(data: object): string {
  return `data: ${JSON.stringify(data)}\n\n`;
}

/** One event with a name. */
export function namedEventOf(name: string, data: object): string {
  return `event: ${name}\n${eventOf(data)}`;
}

export const doneEvent = 'data: [DONE]\n\n';

/** Unnamed events, and a comment that clients ignore. */
export const openAiStream: StreamFormat = {
  contentType: 'text/event-stream; charset=utf-8',
  keepAlive: ': still working\n\n',
  lastEvent: (error) => eventOf(error.toJSON()),
};

/**
 * Maximum number of buffered bytes between the generator and the socket: few, so that a stalled reader pauses the
 * model.
 */
const bufferedBytes = 4096;

const quiet = Symbol('quiet');

/**
 * Starts the generator and waits for its first event, but no longer than the keep-alive interval: a failure before then
 * is a normal error response.
 * @throws whatever the generator throws before its first event
 */
export async function openEventStream(
  parts: AsyncGenerator<StreamPart, void, void>,
  options: EventStreamOptions,
): Promise<Readable> {
  const first = parts.next();
  const isQuiet = (await raceQuiet(first, options.keepAliveMs)) === quiet;
  return new EventStream(parts, first, isQuiet, options);
}

async function raceQuiet<T>(promise: Promise<T>, ms: number): Promise<T | typeof quiet> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<typeof quiet>((resolve) => {
    timer = setTimeout(() => resolve(quiet), ms);
  });
  try {
    return await Promise.race([promise, timeout]);
  } finally {
    clearTimeout(timer);
  }
}

class EventStream extends Readable {
  readonly #parts: AsyncGenerator<StreamPart, void, void>;
  readonly #options: EventStreamOptions;
  #next: Promise<IteratorResult<StreamPart, void>> | undefined;
  #owesKeepAlive: boolean;
  #isPumping = false;
  #stallTimer: NodeJS.Timeout | undefined;

  constructor(
    parts: AsyncGenerator<StreamPart, void, void>,
    first: Promise<IteratorResult<StreamPart, void>>,
    owesKeepAlive: boolean,
    options: EventStreamOptions,
  ) {
    super({ highWaterMark: bufferedBytes });
    this.#parts = parts;
    this.#options = options;
    this.#next = first;
    this.#owesKeepAlive = owesKeepAlive;
  }

  override _read(): void {
    if (this.#stallTimer !== undefined) {
      clearTimeout(this.#stallTimer);
      this.#stallTimer = undefined;
      this.#options.onBlocked(false);
    }
    if (!this.#isPumping) void this.#pump();
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    clearTimeout(this.#stallTimer);
    // the request's signal has aborted the generator's await; this runs its `finally`
    this.#parts.return().then(
      () => callback(error),
      () => callback(error),
    );
  }

  async #pump(): Promise<void> {
    this.#isPumping = true;
    try {
      while (!this.destroyed) {
        const part = await this.#nextPart();
        if (this.destroyed || part === undefined) break;
        if (!this.push(part)) {
          this.#watchReader();
          break;
        }
      }
    } catch (error) {
      this.push(this.#options.lastEvent(error));
      this.push(null);
    } finally {
      this.#isPumping = false;
    }
  }

  /** The next event, a keep-alive when it takes long, or undefined after the end was sent. */
  async #nextPart(): Promise<StreamPart | undefined> {
    if (this.#owesKeepAlive) {
      this.#owesKeepAlive = false;
      return this.#options.keepAlive;
    }
    this.#next ??= this.#parts.next();
    const result = await raceQuiet(this.#next, this.#options.keepAliveMs);
    if (result === quiet) return this.#options.keepAlive;
    this.#next = undefined;
    if (result.done !== true) return result.value;
    this.push(null);
    return undefined;
  }

  #watchReader(): void {
    const { onBlocked, stallTimeoutMs } = this.#options;
    onBlocked(true);
    this.#stallTimer = setTimeout(() => {
      this.destroy(new Error('the client does not read its stream'));
    }, stallTimeoutMs);
  }
}
