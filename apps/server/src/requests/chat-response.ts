/** Converts a generation to the response to a chat request: complete, or as stream chunks. */
import type { ChatPart, FinishReason, GeneratedToken, GenerationResult } from '@winnow/engine';
import type { PreparedChat } from './chat-request.js';
import { doneEvent, eventOf } from '../http/event-stream.js';
import type { GenerationJob } from './generation-job.js';
import { AnswerTokens, chatLogprob } from './logprobs.js';
import type { GenerativeModel } from '../options.js';
import type { ChatCompletion, ChatCompletionChunk, ChatFinishReason, ChatLogprobs, ToolCall } from '../schemas/chat.js';
import { usageOf } from './usage.js';

/** A parsed part of a token, or of the end. */
interface Step {
  readonly parts: readonly ChatPart[];
  readonly logprobs: ChatLogprobs['content'];
}

async function* stepsOf(
  job: GenerationJob,
  { turn, options, wantsLogprobs }: PreparedChat,
  { tokenizer }: GenerativeModel,
): AsyncGenerator<Step, GenerationResult, void> {
  const reader = turn.createReader();
  const answer = wantsLogprobs ? new AnswerTokens(tokenizer, turn.prompt) : undefined;
  const logprobsOf = (released: readonly GeneratedToken[] = []): ChatLogprobs['content'] =>
    released.map((token) => chatLogprob(token, tokenizer));
  const tokens = job.run(turn.prompt, options);
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

function finishReasonOf(reason: FinishReason, hasToolCalls: boolean): ChatFinishReason {
  if (hasToolCalls) return 'tool_calls';
  return reason === 'length' || reason === 'context' ? 'length' : 'stop';
}

function toolCallOf({ id, name, arguments: text }: Extract<ChatPart, { type: 'tool-call' }>): ToolCall {
  return { id, type: 'function', function: { name, arguments: text } };
}

const completionId = ({ requestId }: GenerationJob): string => `chatcmpl-${requestId}`;

export async function chatCompletion(
  job: GenerationJob,
  chat: PreparedChat,
  model: GenerativeModel,
): Promise<ChatCompletion> {
  const steps = stepsOf(job, chat, model);
  const texts: string[] = [];
  const thoughts: string[] = [];
  const toolCalls: ToolCall[] = [];
  const content: ChatLogprobs['content'] = [];
  for (;;) {
    const { done, value } = await steps.next();
    if (done !== true) {
      content.push(...value.logprobs);
      for (const part of value.parts) {
        if (part.type === 'text') texts.push(part.text);
        else if (part.type === 'reasoning') thoughts.push(part.text);
        else if (part.type === 'tool-call') toolCalls.push(toolCallOf(part));
      }
      continue;
    }
    const text = texts.join('');
    return {
      id: completionId(job),
      object: 'chat.completion',
      created: job.created,
      model: job.model,
      choices: [
        {
          index: 0,
          message: {
            role: 'assistant',
            content: text === '' && toolCalls.length > 0 ? null : text,
            ...(thoughts.length === 0 ? {} : { reasoning_content: thoughts.join('') }),
            refusal: null,
            ...(toolCalls.length === 0 ? {} : { tool_calls: toolCalls }),
          },
          logprobs: chat.wantsLogprobs ? { content, refusal: null } : null,
          finish_reason: finishReasonOf(value.finishReason, toolCalls.length > 0),
        },
      ],
      usage: usageOf([value]),
    };
  }
}

type Delta = ChatCompletionChunk['choices'][number]['delta'];

/** Undefined for a part that earlier deltas have said. @param index number of calls before this part */
function deltaOf(part: ChatPart, index: number): Delta | undefined {
  switch (part.type) {
    case 'text':
      return { content: part.text };
    case 'reasoning':
      return { reasoning_content: part.text };
    case 'tool-call-start':
      return { tool_calls: [{ index, id: part.id, type: 'function', function: { name: part.name, arguments: '' } }] };
    case 'tool-call-delta':
      return { tool_calls: [{ index, function: { arguments: part.arguments } }] };
    case 'tool-call':
      return undefined;
  }
}

/** The chunks as events; ends the job. */
export async function* chatEvents(
  job: GenerationJob,
  chat: PreparedChat,
  model: GenerativeModel,
  includeUsage: boolean,
): AsyncGenerator<string, void, void> {
  const head = {
    id: completionId(job),
    object: 'chat.completion.chunk',
    created: job.created,
    model: job.model,
  } as const;
  const usage = includeUsage ? { usage: null } : {};
  const event = (
    delta: Delta,
    logprobs: ChatLogprobs['content'] = [],
    finishReason: ChatFinishReason | null = null,
  ): string => {
    const entries = chat.wantsLogprobs ? { content: logprobs, refusal: null } : null;
    const choice = { index: 0, delta, logprobs: entries, finish_reason: finishReason } as const;
    return eventOf({ ...head, choices: [choice], ...usage } satisfies ChatCompletionChunk);
  };
  const steps = stepsOf(job, chat, model);
  let numToolCalls = 0;
  let isFirst = true;
  const opened = (delta: Delta): Delta => {
    if (!isFirst) return delta;
    isFirst = false;
    return { role: 'assistant', content: '', ...delta };
  };
  try {
    for (;;) {
      const { done, value } = await steps.next();
      if (done === true) {
        yield event(opened({}), [], finishReasonOf(value.finishReason, numToolCalls > 0));
        if (includeUsage) {
          yield eventOf({ ...head, choices: [], usage: usageOf([value]) } satisfies ChatCompletionChunk);
        }
        yield doneEvent;
        return;
      }
      let { logprobs } = value;
      for (const part of value.parts) {
        const delta = deltaOf(part, numToolCalls);
        if (part.type === 'tool-call') numToolCalls++;
        if (delta === undefined) continue;
        yield event(opened(delta), logprobs);
        logprobs = [];
      }
      // a token without text, or whose text is held back
      if (logprobs.length > 0) yield event(opened({}), logprobs);
    }
  } finally {
    await steps.return(undefined as never);
    job.end();
  }
}
