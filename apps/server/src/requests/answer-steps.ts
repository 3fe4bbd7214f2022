/** The loop of all chat protocols: one generation as parsed parts, and the whole answer. */
import type { ChatPart, FinishReason, GeneratedToken, GenerationResult } from '@winnow/engine';
import type { PreparedChat } from './prepared-chat.js';
import type { GenerationJob } from './generation-job.js';
import { AnswerTokens, chatLogprob } from './logprobs.js';
import type { GenerativeModel } from '../options.js';
import { optionsOfChoice } from './sampling.js';
import type { ChatLogprobs } from '../schemas/chat.js';

/** The parts that a token completes, or the end of the answer. */
export interface ChatStep {
  readonly parts: readonly ChatPart[];
  /** Empty if no logprobs are wanted. */
  readonly logprobs: ChatLogprobs['content'];
}

/** @param choice index among several answers */
export async function* chatSteps(
  job: GenerationJob,
  { turn, options, wantsLogprobs }: PreparedChat,
  { tokenizer }: GenerativeModel,
  choice = 0,
): AsyncGenerator<ChatStep, GenerationResult, void> {
  const reader = turn.createReader();
  const answer = wantsLogprobs ? new AnswerTokens(tokenizer, turn.prompt) : undefined;
  const logprobsOf = (released: readonly GeneratedToken[] = []): ChatLogprobs['content'] =>
    released.map((token) => chatLogprob(token, tokenizer));
  const tokens = job.run(turn.prompt, optionsOfChoice(options, choice));
  try {
    for (;;) {
      const { done, value } = await tokens.next();
      if (done === true) {
        yield { parts: reader.end(), logprobs: logprobsOf(answer?.end(value.finishReason)) };
        return value;
      }
      yield { parts: value.text === '' ? [] : reader.push(value.text), logprobs: logprobsOf(answer?.push(value)) };
    }
  } finally {
    await tokens.return(undefined as never);
  }
}

/** A whole answer. */
export interface ChatAnswer {
  /** Texts, reasoning and whole calls; adjacent ones of the same kind are one part. */
  readonly parts: readonly ChatPart[];
  readonly logprobs: ChatLogprobs['content'];
  readonly result: GenerationResult;
}

export async function chatAnswer(
  job: GenerationJob,
  chat: PreparedChat,
  model: GenerativeModel,
  choice = 0,
): Promise<ChatAnswer> {
  const steps = chatSteps(job, chat, model, choice);
  const parts: ChatPart[] = [];
  const logprobs: ChatLogprobs['content'] = [];
  for (;;) {
    const { done, value } = await steps.next();
    if (done === true) return { parts, logprobs, result: value };
    logprobs.push(...value.logprobs);
    for (const part of value.parts) append(parts, part);
  }
}

function append(parts: ChatPart[], part: ChatPart): void {
  const last = parts.at(-1);
  if ((part.type === 'text' || part.type === 'reasoning') && last?.type === part.type) {
    parts[parts.length - 1] = { ...last, text: last.text + part.text };
  } else if (part.type === 'text' || part.type === 'reasoning' || part.type === 'tool-call') parts.push(part);
}

/** All text or all reasoning of an answer. */
export function textOfParts(parts: readonly ChatPart[], type: 'text' | 'reasoning'): string {
  return parts.map((part) => (part.type === type ? part.text : '')).join('');
}

/** Whether the answer was cut off by a limit. */
export function isCutOff(reason: FinishReason): boolean {
  return reason === 'length' || reason === 'context';
}
