/** The public face of a loaded model. */
import type { Tokenizer } from '@winnow/tokenizers';
import type { RecordProfile, Fallback } from '@winnow/ops';
import type { DecoderConfig } from '@winnow/models';
import { CapacityError, ReleasedError } from '@winnow/tensor';
import type { ChatTemplate } from '../chat/template.js';
import { encodePrompt, type Prompt } from '../chat/encode-prompt.js';
import type { FeedForwardMetrics } from '../metrics/feed-forward.js';
import type { FeedForwardAccess } from '../sparsity/feed-forward.js';
import { computeLogprobs, type LogitsOptions } from '../generation/logprobs.js';
import type { MemoryPlan } from '../plan/memory-plan.js';
import { loadSession, type SessionModel } from './file.js';
import { openSessionSource, type SessionSource } from './location.js';
import { createGeneration, type GenerateOptions, type Generation } from '../generation/generation.js';
import { createSession, type SessionStart, type Session } from './session.js';
import type { ModelMetrics } from '../metrics/model-metrics.js';
import type { SamplingOptions } from '../generation/sampling-options.js';

/** A loaded model. */
export interface Model {
  readonly name: string;
  readonly config: DecoderConfig;
  readonly tokenizer: Tokenizer;
  /** How conversations become prompts, if the model says so. */
  readonly chatTemplate: ChatTemplate | undefined;
  /** Settings the model recommends. */
  readonly defaultSampling: SamplingOptions;
  readonly contextSize: number;
  readonly plan: MemoryPlan;
  /** How it attends, in the text form of attention policies. */
  readonly attention: string;
  readonly backend: string;
  readonly fallbacks: readonly Fallback[];
  /** What loading did otherwise than asked, such as matrices that could not be quantised: one sentence each. */
  readonly notices: readonly string[];
  /** @throws {CapacityError} when `maxSessions` are open */
  createSession(): Session;
  /**
   * Opens a session that `save` has written.
   * @throws {FormatError} for a damaged file, or one of another model or with other cache options
   * @throws {CapacityError} when `maxSessions` are open or the cache has no room
   * @throws {IoError} when reading fails
   */
  restoreSession(source: SessionSource, options?: { readonly signal?: AbortSignal }): Promise<Session>;
  /** Generates in a session of its own, which counts among `maxSessions` while it runs. */
  generate(prompt: Prompt, options?: GenerateOptions): Generation;
  /** Tokens of a prompt, with BOS and EOS as the model wants them. @throws {ArgumentError} for ids outside the vocabulary */
  encodePrompt(prompt: Prompt): Int32Array;
  /** Log-probabilities of the whole vocabulary after the tokens at the asked positions, `[vocabSize]` each. */
  logprobs(tokens: ArrayLike<number>, options?: LogitsOptions): Promise<Float32Array[]>;
  /** What the FFNs see and are, when loaded with `traceFeedForward`. */
  readonly feedForward: FeedForwardAccess | undefined;
  /** How full the cache is, and what has happened since loading. */
  metrics(): ModelMetrics;
  /** Per op, when loaded with `profile`. */
  profile(): readonly RecordProfile[];
  /** Frees everything after the step that is running; generations in progress end with `ReleasedError`. */
  dispose(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

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
  readonly loaded: SessionModel;
  /** Frees weights and cache, when the programs are gone. */
  readonly freeMemory: () => Promise<void>;
}

export function createModel({ loaded, freeMemory, maxSessions, feedForwardMetrics, ...facts }: ModelParts): Model {
  const { config, tokenizer, scheduler, pool } = loaded;
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
      return {
        numSessions: sessions.size,
        cache: pool.metrics(),
        ...(pool.tiers === undefined ? {} : { tiers: pool.tiers.metrics() }),
        steps: scheduler.statistics(),
        ...(feedForward === undefined ? {} : { feedForward }),
      };
    },
    profile: () => scheduler.profile(),
    dispose,
    [Symbol.asyncDispose]: dispose,
  };
}
