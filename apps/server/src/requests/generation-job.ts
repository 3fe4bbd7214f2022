/** One request for generated text: its slot, its timing, and its generations. */
import type { FastifyReply } from 'fastify';
import type { GeneratedToken, GenerateOptions, GenerationResult } from '@winnow/engine';
import { ClientClosedError, contextExceeded } from '../http/api-error.js';
import { startGenerationSpan, type GenerationSpan } from '../metrics/spans.js';
import type { GenerativeEntry } from '../models/model-entry.js';
import { openScope, type RequestScope } from './request-scope.js';
import type { ServerContext } from './server-context.js';
import type { Lease } from '../models/slots.js';

export interface GenerationJob {
  readonly requestId: string;
  readonly model: string;
  /** Seconds since 1970. */
  readonly created: number;
  readonly signal: AbortSignal;
  /** Streams the tokens of one generation and returns its result. One at a time. */
  run(prompt: Int32Array, options: GenerateOptions): AsyncGenerator<GeneratedToken, GenerationResult, void>;
  /**
   * Computes the log-probabilities after each token of a prompt but the last.
   * @param onRow receives the rows in order, `[vocabSize]` each
   */
  score(prompt: Int32Array, onRow: (position: number, logprobs: Float32Array) => void): Promise<void>;
  /** Called when the reader of the stream stalls or resumes. */
  setBlocked(isBlocked: boolean): void;
  /** Releases the slot. May be called more than once. */
  end(): void;
}

/** @throws {ApiError} when a prompt leaves no room for a generated token */
export function checkPrompt(prompt: Int32Array, { model }: GenerativeEntry, param: string): void {
  if (prompt.length >= model.contextSize) throw contextExceeded(param, prompt.length, model.contextSize);
}

/** Waits for a slot. @throws {ApiError} when none becomes available */
export async function startJob(
  context: ServerContext,
  entry: GenerativeEntry,
  reply: FastifyReply,
): Promise<GenerationJob> {
  const { limits, shutdown } = context;
  const scope = openScope(reply, limits.requestTimeoutMs, shutdown);
  const lease = await entry.slots
    .acquire(reply.request.id, scope.signal, context.isInternal(reply.request))
    .catch((error: unknown) => {
      scope.end();
      throw error;
    });
  const cacheSalt = context.cacheSaltOf(reply.request);
  return new SlotJob(context.metrics, entry, {
    ...{ requestId: reply.request.id, cacheSalt, scope, lease },
    startSpan: () => startGenerationSpan(reply.request, entry.id),
    onPrompt: context.promptListenerOf(reply.request),
    charge: (numTokens) => context.chargeTokens(reply.request, numTokens),
    compileTimeoutMs: limits.compileTimeoutMs,
  });
}

interface JobResources {
  readonly requestId: string;
  readonly cacheSalt: string | undefined;
  readonly compileTimeoutMs: number;
  readonly scope: RequestScope;
  readonly lease: Lease;
  readonly startSpan: () => GenerationSpan;
  readonly onPrompt: (() => void) | undefined;
  /** Counts tokens for the rates of the client. */
  readonly charge: (numTokens: number) => void;
}

class SlotJob implements GenerationJob {
  readonly requestId: string;
  readonly model: string;
  readonly created = Math.floor(Date.now() / 1000);
  readonly signal: AbortSignal;
  readonly #metrics: ServerContext['metrics'];
  readonly #entry: GenerativeEntry;
  readonly #scope: RequestScope;
  readonly #lease: Lease;
  readonly #cacheSalt: string | undefined;
  readonly #compileTimeoutMs: number;
  readonly #charge: JobResources['charge'];
  readonly #startSpan: JobResources['startSpan'];
  readonly #onPrompt: JobResources['onPrompt'];
  readonly #labels: { readonly model: string };

  constructor(
    metrics: ServerContext['metrics'],
    entry: GenerativeEntry,
    { requestId, cacheSalt, compileTimeoutMs, scope, lease, charge, startSpan, onPrompt }: JobResources,
  ) {
    this.requestId = requestId;
    this.model = entry.id;
    this.signal = scope.signal;
    this.#metrics = metrics;
    this.#entry = entry;
    this.#scope = scope;
    this.#lease = lease;
    this.#cacheSalt = cacheSalt;
    this.#compileTimeoutMs = compileTimeoutMs;
    this.#charge = charge;
    this.#startSpan = startSpan;
    this.#onPrompt = onPrompt;
    this.#labels = { model: entry.id };
  }

  async *run(prompt: Int32Array, options: GenerateOptions): AsyncGenerator<GeneratedToken, GenerationResult, void> {
    const startMs = performance.now();
    const { activity } = this.#lease;
    activity.state = 'prompt';
    activity.promptTokens = prompt.length;
    activity.processedTokens = 0;
    let numTokens = 0;
    let ended: GenerationResult | undefined;
    const span = this.#startSpan();
    const generation = this.#entry.model.generate(prompt, {
      ...options,
      ...(this.#cacheSalt === undefined ? {} : { cacheSalt: this.#cacheSalt }),
      compileTimeoutMs: this.#compileTimeoutMs,
      signal: this.signal,
      onPromptProgress: ({ processedTokens }) => {
        activity.processedTokens = processedTokens;
      },
    });
    try {
      for await (const token of generation) {
        numTokens++;
        activity.generatedTokens++;
        if (numTokens === 1) {
          activity.state = 'generating';
          span.noteFirstToken();
          this.#onPrompt?.();
          this.#metrics.firstTokens.observe((performance.now() - startMs) / 1000, this.#labels);
        }
        yield token;
      }
      const result = await generation.result();
      ended = result;
      this.#metrics.cachedTokens.add(result.cachedTokens, this.#labels);
      return result;
    } finally {
      this.#metrics.promptTokens.add(prompt.length, this.#labels);
      this.#metrics.generatedTokens.add(numTokens, this.#labels);
      this.#charge(prompt.length + numTokens);
      span.end(prompt.length, numTokens, ended);
    }
  }

  async score(prompt: Int32Array, onRow: (position: number, logprobs: Float32Array) => void): Promise<void> {
    const { activity } = this.#lease;
    activity.state = 'prompt';
    activity.promptTokens = prompt.length;
    activity.processedTokens = 0;
    const positions = Array.from({ length: prompt.length - 1 }, (_, position) => position);
    if (positions.length === 0) return;
    this.#charge(prompt.length);
    await this.#entry.model.logprobs?.(prompt, {
      ...(this.#cacheSalt === undefined ? {} : { cacheSalt: this.#cacheSalt }), // the generation reuses the pages
      positions,
      signal: this.signal,
      onRow: (position, logprobs) => {
        activity.processedTokens = position + 1;
        onRow(position, logprobs);
      },
    });
  }

  readonly setBlocked = (isBlocked: boolean): void => {
    this.#lease.activity.state = isBlocked ? 'blocked' : 'generating';
  };

  end(): void {
    const { aborted, reason } = this.signal;
    if (aborted && reason instanceof ClientClosedError) this.#metrics.canceled.add(1, this.#labels);
    this.#scope.end();
    this.#lease.release();
  }
}
