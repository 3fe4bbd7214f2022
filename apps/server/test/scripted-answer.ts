/** A job and a chat whose answer has given parts, one per token. */
import type { ChatPart, GeneratedToken, GenerationResult } from '@winnow/engine';
import type { PreparedChat } from '../src/requests/prepared-chat.js';
import type { GenerationJob } from '../src/requests/generation-job.js';

export interface ScriptedAnswer {
  readonly job: GenerationJob;
  readonly chat: PreparedChat;
}

export function answering(parts: readonly ChatPart[]): ScriptedAnswer {
  const job: GenerationJob = {
    requestId: 'r1',
    model: 'scripted',
    created: 0,
    signal: new AbortController().signal,
    async *run(): AsyncGenerator<GeneratedToken, GenerationResult, void> {
      for (const [tokenId] of parts.entries()) yield { tokenId, text: 'x', logprob: -1, topLogprobs: [] };
      return {
        ...{ text: 'x', tokens: parts.map(() => 1), promptTokens: 3, cachedTokens: 2, droppedTokens: 0 },
        ...{ evictedTokens: 0, finishReason: 'eos' as const, satisfiesConstraint: true },
        timings: { promptMs: 1, generateMs: 2, promptTokensPerSecond: 1, tokensPerSecond: 1 },
      };
    },
    score: async () => {},
    setBlocked: () => {},
    end: () => {},
  };
  const createReader: PreparedChat['turn']['createReader'] = () => {
    const rest = [...parts];
    return { push: () => rest.splice(0, 1), end: () => [] };
  };
  const turn = { prompt: Int32Array.of(1, 2, 3), options: {}, toolFormat: undefined, createReader };
  return { job, chat: { turn, options: {}, wantsLogprobs: false, numChoices: 1 } };
}
