/** Converts answers to Ollama's: one object, or one line of JSON per part. */
import type { ChatPart, GenerationResult } from '@winnow/engine';
import type { GenerativeModel } from '../../options.js';
import { parsedCall, type PreparedChat } from '../../requests/prepared-chat.js';
import { chatAnswer, chatSteps, isCutOff, textOfParts } from '../../requests/answer-steps.js';
import type { GenerationJob } from '../../requests/generation-job.js';
import { lineOf } from './errors.js';
import type { OllamaAnswer, OllamaResponseMessage } from './schemas.js';

/** Where an answer's text goes: into a message, or beside it. */
export type Shape = 'chat' | 'generate';

interface Content {
  readonly text?: string;
  readonly thinking?: string;
  readonly toolCalls?: NonNullable<OllamaResponseMessage['tool_calls']>;
}

function contentOf(parts: readonly ChatPart[]): Content {
  // a call that was cut off has no arguments that an object could show
  const toolCalls = parts.flatMap((part) =>
    part.type === 'tool-call' && part.isComplete
      ? [{ function: { name: part.name, arguments: parsedCall(part) } }]
      : [],
  );
  const thinking = textOfParts(parts, 'reasoning');
  return {
    text: textOfParts(parts, 'text'),
    ...(thinking === '' ? {} : { thinking }),
    ...(toolCalls.length === 0 ? {} : { toolCalls }),
  };
}

/** An answer or a part of one. */
export function answerOf(shape: Shape, model: string, { text = '', thinking, toolCalls }: Content): OllamaAnswer {
  const head = { model, created_at: new Date().toISOString(), done: false };
  const thought = thinking === undefined ? {} : { thinking };
  if (shape === 'generate') return { ...head, response: text, ...thought };
  const calls = toolCalls === undefined ? {} : { tool_calls: toolCalls };
  return { ...head, message: { role: 'assistant', content: text, ...thought, ...calls } };
}

export const nanoseconds = (ms: number): number => Math.round(ms * 1e6);

function endOf({ finishReason, tokens, promptTokens, timings }: GenerationResult): Partial<OllamaAnswer> {
  const { promptMs, generateMs } = timings;
  return {
    done: true,
    done_reason: isCutOff(finishReason) ? 'length' : 'stop',
    total_duration: nanoseconds(promptMs + generateMs),
    load_duration: 0,
    prompt_eval_count: promptTokens,
    prompt_eval_duration: nanoseconds(promptMs),
    eval_count: tokens.length,
    eval_duration: nanoseconds(generateMs),
  };
}

export async function wholeAnswer(
  shape: Shape,
  job: GenerationJob,
  chat: PreparedChat,
  model: GenerativeModel,
): Promise<object> {
  const { parts, logprobs, result } = await chatAnswer(job, chat, model);
  const scores = chat.wantsLogprobs ? { logprobs } : {};
  return { ...answerOf(shape, job.model, contentOf(parts)), ...scores, ...endOf(result) };
}

/** The lines of an answer; ends the job. */
export async function* answerLines(
  shape: Shape,
  job: GenerationJob,
  chat: PreparedChat,
  model: GenerativeModel,
): AsyncGenerator<string, void, void> {
  const steps = chatSteps(job, chat, model);
  try {
    for (;;) {
      const { done, value } = await steps.next();
      if (done === true) {
        yield lineOf({ ...answerOf(shape, job.model, {}), ...endOf(value) });
        return;
      }
      const { text = '', ...others } = contentOf(value.parts);
      if (text === '' && Object.keys(others).length === 0 && value.logprobs.length === 0) continue;
      const scores = value.logprobs.length === 0 ? {} : { logprobs: value.logprobs };
      yield lineOf({ ...answerOf(shape, job.model, { text, ...others }), ...scores });
    }
  } finally {
    await steps.return(undefined as never);
    job.end();
  }
}
