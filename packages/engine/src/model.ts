/** The public face of a loaded model. */
import type { Fallback } from '@winnow/ops';
import { CapacityError, ReleasedError } from '@winnow/tensor';
import type { ChatTemplate } from './chat-template.js';
import { encodePrompt } from './encode-prompt.js';
import type { LoadedModel } from './loaded-model.js';
import { computeLogprobs } from './logprobs.js';
import type { MemoryPlan } from './memory-plan.js';
import type { SamplingOptions } from './sampling-options.js';
import { createGeneration, createSession } from './session.js';
import type { GenerateOptions, Generation, Model, Prompt, Session } from './types.js';

export interface ModelParts {
  readonly name: string;
  readonly backend: string;
  readonly fallbacks: readonly Fallback[];
  readonly chatTemplate: ChatTemplate | undefined;
  readonly defaultSampling: SamplingOptions;
  readonly maxSessions: number;
  readonly plan: MemoryPlan;
  readonly loaded: LoadedModel;
  /** Frees programs and memory. */
  readonly release: () => Promise<void>;
}

export function createModel({ loaded, release, maxSessions, ...facts }: ModelParts): Model {
  const { tokenizer, runner } = loaded;
  const sessions = new Set<Session>();
  let isDisposed = false;

  const checkOpen = (): void => {
    if (isDisposed) throw new ReleasedError('model');
  };
  const encode = (prompt: Prompt): Int32Array => encodePrompt(prompt, tokenizer, facts.chatTemplate);

  function openSession(): Session {
    checkOpen();
    if (sessions.size >= maxSessions) {
      const [needed, hint] = [sessions.size + 1, 'dispose one, or load with a larger maxSessions'];
      throw new CapacityError({ resource: 'sessions', needed, available: maxSessions, unit: 'sessions', hint });
    }
    const session = createSession(loaded, {
      encodePrompt: encode,
      defaults: facts.defaultSampling,
      checkOpen,
      onDispose: () => sessions.delete(session),
    });
    sessions.add(session);
    return session;
  }

  async function dispose(): Promise<void> {
    if (isDisposed) return;
    isDisposed = true;
    await runner.dispose();
    await release();
  }

  return {
    ...facts,
    config: loaded.config,
    tokenizer,
    contextSize: loaded.contextSize,
    createSession: openSession,
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
    logprobs: async (tokens, options = {}) => {
      checkOpen();
      return computeLogprobs(loaded, encode(Int32Array.from(tokens)), options);
    },
    profile: () => runner.profile(),
    dispose,
    [Symbol.asyncDispose]: dispose,
  };
}
