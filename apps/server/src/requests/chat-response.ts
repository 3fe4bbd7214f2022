/** Converts a generation to the response to a chat request: complete, or as stream chunks. */
import type { ChatPart, FinishReason, GenerationResult } from '@winnow/engine';
import type { PreparedChat } from './prepared-chat.js';
import { chatAnswer, chatSteps, isCutOff, textOfParts } from './answer-steps.js';
import { doneEvent, eventOf } from '../http/event-stream.js';
import type { GenerationJob } from './generation-job.js';
import type { GenerativeModel } from '../options.js';
import type { ChatCompletion, ChatCompletionChunk, ChatFinishReason, ChatLogprobs, ToolCall } from '../schemas/chat.js';
import { usageOf } from './usage.js';

/** @param endsWithCall whether the last call of the answer is complete */
function finishReasonOf(reason: FinishReason, endsWithCall: boolean): ChatFinishReason {
  if (endsWithCall) return 'tool_calls';
  return isCutOff(reason) ? 'length' : 'stop';
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
  const choices: ChatCompletion['choices'] = [];
  const results: GenerationResult[] = [];
  for (let index = 0; index < chat.numChoices; index++) {
    const { parts, logprobs: content, result } = await chatAnswer(job, chat, model, index);
    const calls = parts.filter((part) => part.type === 'tool-call');
    const toolCalls = calls.map(toolCallOf);
    const [text, reasoning] = [textOfParts(parts, 'text'), textOfParts(parts, 'reasoning')];
    results.push(result);
    choices.push({
      index,
      message: {
        role: 'assistant',
        content: text === '' && toolCalls.length > 0 ? null : text,
        ...(reasoning === '' ? {} : { reasoning_content: reasoning }),
        refusal: null,
        ...(toolCalls.length === 0 ? {} : { tool_calls: toolCalls }),
      },
      logprobs: chat.wantsLogprobs ? { content, refusal: null } : null,
      finish_reason: finishReasonOf(result.finishReason, calls.at(-1)?.isComplete === true),
    });
  }
  return {
    id: completionId(job),
    object: 'chat.completion',
    created: job.created,
    model: job.model,
    choices,
    usage: usageOf(results, chat.numChoices),
  };
}

type Delta = ChatCompletionChunk['choices'][number]['delta'];

/** The chunks as events; ends the job. */
export async function* chatEvents(
  job: GenerationJob,
  chat: PreparedChat,
  model: GenerativeModel,
  includeUsage: boolean,
): AsyncGenerator<string, void, void> {
  const head: ChunkHead = {
    id: completionId(job),
    object: 'chat.completion.chunk',
    created: job.created,
    model: job.model,
    ...(includeUsage ? { usage: null } : {}),
  };
  const results: GenerationResult[] = [];
  try {
    for (let index = 0; index < chat.numChoices; index++) {
      results.push(yield* choiceEvents(job, chat, model, head, index));
    }
    if (includeUsage) {
      const usage = usageOf(results, chat.numChoices);
      yield eventOf({ ...head, choices: [], usage } satisfies ChatCompletionChunk);
    }
    yield doneEvent;
  } finally {
    job.end();
  }
}

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

type ChunkHead = Omit<ChatCompletionChunk, 'choices'>;

/** The chunks of one choice. */
async function* choiceEvents(
  job: GenerationJob,
  chat: PreparedChat,
  model: GenerativeModel,
  head: ChunkHead,
  index: number,
): AsyncGenerator<string, GenerationResult, void> {
  const event = (
    delta: Delta,
    logprobs: ChatLogprobs['content'] = [],
    finishReason: ChatFinishReason | null = null,
  ): string => {
    const entries = chat.wantsLogprobs ? { content: logprobs, refusal: null } : null;
    const choice = { index, delta, logprobs: entries, finish_reason: finishReason } as const;
    return eventOf({ ...head, choices: [choice] } satisfies ChatCompletionChunk);
  };
  const steps = chatSteps(job, chat, model, index);
  let numToolCalls = 0;
  let endsWithCall = false;
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
        yield event(opened({}), [], finishReasonOf(value.finishReason, endsWithCall));
        return value;
      }
      let { logprobs } = value;
      for (const part of value.parts) {
        const delta = deltaOf(part, numToolCalls);
        if (part.type === 'tool-call') {
          numToolCalls++;
          endsWithCall = part.isComplete;
        }
        if (delta === undefined) continue;
        yield event(opened(delta), logprobs);
        logprobs = [];
      }
      // a token without text, or whose text is held back
      if (logprobs.length > 0) yield event(opened({}), logprobs);
    }
  } finally {
    await steps.return(undefined as never);
  }
}
