/** The public face of a loaded model. */
import type { Fallback } from '@winnow/ops';
import { CapacityError, ReleasedError } from '@winnow/tensor';
import type { ChatTemplate } from '../chat/template.js';
import { encodePrompt } from '../chat/encode-prompt.js';
import type { FeedForwardMetrics } from '../metrics/feed-forward.js';
import type { FeedForwardAccess } from '../sparsity/feed-forward.js';
import type { LoadedModel } from '../runtime/loaded-model.js';
import { computeLogprobs } from '../generation/logprobs.js';
import type { MemoryPlan } from '../plan/memory-plan.js';
import { collectMetrics } from '../metrics/metrics.js';
import { loadSession } from './file.js';
import { openSessionSource } from './location.js';
import { createGeneration, createSession, type SessionStart } from './session.js';
import type { GenerateOptions, Generation, Model, Prompt, Session } from '../types.js';

export interface ModelParts {
  readonly name: string;
  readonly backend: string;
  readonly fallbacks: readonly Fallback[];
  readonly notices: readonly string[];
  readonly chatTemplate: ChatTemplate | undefined;
  readonly maxSessions: number;
  readonly plan: MemoryPlan;
  readonly attention: string;
  readonly feedForward: FeedForwardAccess | undefined;
  readonly feedForwardMetrics: () => FeedForwardMetrics | undefined;
  readonly loaded: LoadedModel;
  /** Frees weights and cache, when the programs are gone. */
  readonly freeMemory: () => Promise<void>;
}

export function createModel({ loaded, freeMemory, maxSessions, feedForwardMetrics, ...facts }: ModelParts): Model {
  const { config, tokenizer, scheduler } = loaded;
  const sessions = new Set<Session>();
  let disposal: Promise<void> | undefined;

  const checkOpen = (): void => {
    if (disposal !== undefined) throw new ReleasedError('model');
  };
  const encode = (prompt: Prompt): Int32Array => encodePrompt(prompt, tokenizer, facts.chatTemplate, config.vocabSize);

  function checkRoom(): void {
    checkOpen();
    if (sessions.size >= maxSessions) {
      const [needed, hint] = [sessions.size + 1, 'dispose one, or load with a larger maxSessions'];
      throw new CapacityError({ resource: 'sessions', needed, available: maxSessions, unit: 'sessions', hint });
    }
  }

  /** @param begin makes what the session begins with, once there is a place for it */
  function openSession(begin?: () => SessionStart): Session {
    checkRoom();
    const options = {
      encodePrompt: encode,
      checkOpen,
      onDispose: () => void sessions.delete(session),
      openFork: (beginFork: () => SessionStart) => openSession(beginFork),
    };
    const session: Session = createSession(loaded, options, begin?.());
    sessions.add(session);
    return session;
  }

  /** Every caller waits for the end of the one disposal. */
  function dispose(): Promise<void> {
    disposal ??= scheduler.dispose().then(freeMemory);
    return disposal;
  }

  return {
    ...facts,
    config,
    tokenizer,
    contextSize: loaded.contextSize,
    defaultSampling: loaded.defaultSampling,
    createSession: () => openSession(),
    generate(prompt: Prompt, options: GenerateOptions = {}): Generation {
      return createGeneration(async function* run() {
        const session = openSession();
        try {
          const generation = session.generate(prompt, options);
          yield* generation;
          return await generation.result();
        } finally {
          session.dispose();
        }
      });
    },
    encodePrompt: encode,
    async restoreSession(location, { signal } = {}) {
      checkRoom();
      signal?.throwIfAborted();
      const source = await openSessionSource(location, loaded.files);
      try {
        const start = await loadSession(loaded, source, signal);
        try {
          return openSession(() => start);
        } catch (error) {
          start.sequence.free();
          throw error;
        }
      } finally {
        await source.close();
      }
    },
    logprobs: async (tokens, options = {}) => {
      checkOpen();
      return computeLogprobs(loaded, encode(tokens), options);
    },
    metrics() {
      const feedForward = feedForwardMetrics();
      const metrics = collectMetrics(loaded.pool, scheduler, sessions.size);
      return feedForward === undefined ? metrics : { ...metrics, feedForward };
    },
    profile: () => scheduler.profile(),
    dispose,
    [Symbol.asyncDispose]: dispose,
  };
}
