/** One request for generated text: its slot, its time, and the generations that run in it. */
import type { FastifyReply } from 'fastify';
import type { GeneratedToken, GenerateOptions, GenerationResult } from '@winnow/engine';
import { ClientClosedError, contextExceeded } from './api-error.js';
import type { GenerativeEntry } from './model-registry.js';
import { openScope } from './request-scope.js';
import type { ServerContext } from './server-context.js';

export interface GenerationJob {
  readonly requestId: string;
  readonly model: string;
  /** Seconds since 1970. */
  readonly created: number;
  readonly signal: AbortSignal;
  /** The tokens of one generation; returns its result. One at a time. */
  run(prompt: Int32Array, options: GenerateOptions): AsyncGenerator<GeneratedToken, GenerationResult, void>;
  /** The reader of the stream stops, or goes on, taking parts. */
  setBlocked(isBlocked: boolean): void;
  /** Gives the slot back. May be called more than once. */
  end(): void;
}

/** @throws {ApiError} when a prompt leaves no room for a token */
export function checkPrompt(prompt: Int32Array, { model }: GenerativeEntry, param: string): void {
  if (prompt.length >= model.contextSize) throw contextExceeded(param, prompt.length, model.contextSize);
}

/** Waits for a slot. @throws {ApiError} when there is none to be had */
export async function startJob(
  { limits, metrics, shutdown }: ServerContext,
  { id, model, slots }: GenerativeEntry,
  reply: FastifyReply,
): Promise<GenerationJob> {
  const requestId = reply.request.id;
  const scope = openScope(reply, limits.requestTimeoutMs, shutdown);
  const { signal } = scope;
  const lease = await slots.acquire(requestId, signal).catch((error: unknown) => {
    scope.end();
    throw error;
  });
  const { activity } = lease;
  const labels = { model: id };

  async function* run(
    prompt: Int32Array,
    options: GenerateOptions,
  ): AsyncGenerator<GeneratedToken, GenerationResult, void> {
    const startMs = performance.now();
    activity.state = 'prompt';
    activity.promptTokens = prompt.length;
    activity.processedTokens = 0;
    let numTokens = 0;
    const generation = model.generate(prompt, {
      ...options,
      signal,
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
          metrics.firstTokens.observe((performance.now() - startMs) / 1000, labels);
        }
        yield token;
      }
      const result = await generation.result();
      metrics.cachedTokens.add(result.cachedTokens, labels);
      return result;
    } finally {
      metrics.promptTokens.add(prompt.length, labels);
      metrics.generatedTokens.add(numTokens, labels);
    }
  }

  return {
    requestId,
    model: id,
    created: Math.floor(Date.now() / 1000),
    signal,
    run,
    setBlocked(isBlocked): void {
      activity.state = isBlocked ? 'blocked' : 'generating';
    },
    end(): void {
      if (signal.aborted && signal.reason instanceof ClientClosedError) metrics.cancelled.add(1, labels);
      scope.end();
      lease.release();
    },
  };
}
