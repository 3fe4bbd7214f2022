/** Converts an answer to a message of the Messages API: complete, or as its events. */
import type { ChatPart, GenerationResult } from '@winnow/engine';
import { namedEventOf } from '../../http/event-stream.js';
import type { GenerativeModel } from '../../options.js';
import { parsedCall, stopSequenceOf, type PreparedChat } from '../../requests/prepared-chat.js';
import { chatAnswer, chatSteps } from '../../requests/answer-steps.js';
import type { GenerationJob } from '../../requests/generation-job.js';
import type { ContentBlock, ContentDelta, Message, MessageStreamEvent, MessageUsage, StopReason } from './schemas.js';

export async function message(job: GenerationJob, chat: PreparedChat, model: GenerativeModel): Promise<Message> {
  const { parts, result } = await chatAnswer(job, chat, model);
  const content = parts.flatMap(blockOf);
  return {
    ...headOf(job),
    content,
    ...endOf(
      result,
      chat,
      model,
      content.some(({ type }) => type === 'tool_use'),
    ),
    usage: usageOf(result),
  };
}

/** The events of a message; ends the job. */
export async function* messageEvents(
  job: GenerationJob,
  chat: PreparedChat,
  model: GenerativeModel,
): AsyncGenerator<string, void, void> {
  const writer = new EventWriter();
  const steps = chatSteps(job, chat, model);
  let hasStarted = false;
  const start = (): string => {
    hasStarted = true;
    const usage = { ...noUsage, input_tokens: chat.turn.prompt.length };
    const opened: Message = { ...headOf(job), content: [], stop_reason: null, stop_sequence: null, usage };
    return eventOf({ type: 'message_start', message: opened });
  };
  try {
    for (;;) {
      const { done, value } = await steps.next();
      if (!hasStarted) yield start();
      if (done !== true) {
        for (const part of value.parts) yield* writer.eventsOf(part).map(eventOf);
        continue;
      }
      yield* writer.end().map(eventOf);
      const { stop_reason: stopReason, stop_sequence: sequence } = endOf(value, chat, model, writer.hasCalls);
      const delta = { stop_reason: stopReason, stop_sequence: sequence };
      yield eventOf({ type: 'message_delta', delta, usage: usageOf(value) });
      yield eventOf({ type: 'message_stop' });
      return;
    }
  } finally {
    await steps.return(undefined as never);
    job.end();
  }
}

const eventOf = (event: MessageStreamEvent): string => namedEventOf(event.type, event);

const headOf = ({ requestId, model }: GenerationJob): Pick<Message, 'id' | 'type' | 'role' | 'model'> => ({
  id: `msg_${requestId}`,
  type: 'message',
  role: 'assistant',
  model,
});

const noUsage: MessageUsage = {
  input_tokens: 0,
  cache_creation_input_tokens: 0,
  cache_read_input_tokens: 0,
  output_tokens: 0,
};

/** Cached tokens do not count as input, as in the API of Anthropic. */
function usageOf({ promptTokens, cachedTokens, tokens }: GenerationResult): MessageUsage {
  return {
    ...noUsage,
    input_tokens: promptTokens - cachedTokens,
    cache_read_input_tokens: cachedTokens,
    output_tokens: tokens.length,
  };
}

function endOf(
  result: GenerationResult,
  { options }: PreparedChat,
  model: GenerativeModel,
  hasCalls: boolean,
): { stop_reason: StopReason; stop_sequence: string | null } {
  const { finishReason } = result;
  if (finishReason === 'length') return { stop_reason: 'max_tokens', stop_sequence: null };
  if (finishReason === 'context') return { stop_reason: 'model_context_window_exceeded', stop_sequence: null };
  if (hasCalls) return { stop_reason: 'tool_use', stop_sequence: null };
  const sequence = stopSequenceOf(result, options.stop, model) ?? null;
  return { stop_reason: sequence === null ? 'end_turn' : 'stop_sequence', stop_sequence: sequence };
}

function blockOf(part: ChatPart): ContentBlock[] {
  if (part.type === 'text') return [{ type: 'text', text: part.text, citations: null }];
  if (part.type === 'reasoning') return [{ type: 'thinking', thinking: part.text, signature: '' }];
  if (part.type !== 'tool-call') return [];
  return [{ type: 'tool_use', id: part.id, name: part.name, input: parsedCall(part), caller: { type: 'direct' } }];
}

/** Opens and closes the blocks of a stream: one after the other, each with its deltas. */
class EventWriter {
  #index = -1;
  #open: ContentBlock['type'] | undefined;
  hasCalls = false;

  eventsOf(part: ChatPart): MessageStreamEvent[] {
    switch (part.type) {
      case 'text':
        return [
          ...this.#opened({ type: 'text', text: '', citations: null }),
          this.#delta({ type: 'text_delta', text: part.text }),
        ];
      case 'reasoning':
        return [
          ...this.#opened({ type: 'thinking', thinking: '', signature: '' }),
          this.#delta({ type: 'thinking_delta', thinking: part.text }),
        ];
      case 'tool-call-start': {
        this.hasCalls = true;
        const { id, name } = part;
        const block: ContentBlock = { type: 'tool_use', id, name, input: {}, caller: { type: 'direct' } };
        return [...this.end(), ...this.#opened(block)];
      }
      case 'tool-call-delta':
        return [this.#delta({ type: 'input_json_delta', partial_json: part.arguments })];
      case 'tool-call':
        return this.end();
    }
  }

  /** Closes the open block. */
  end(): MessageStreamEvent[] {
    if (this.#open === undefined) return [];
    this.#open = undefined;
    return [{ type: 'content_block_stop', index: this.#index }];
  }

  /** Continues a block of the same type. */
  #opened(block: ContentBlock): MessageStreamEvent[] {
    if (this.#open === block.type) return [];
    const ended = this.end();
    this.#open = block.type;
    this.#index++;
    return [...ended, { type: 'content_block_start', index: this.#index, content_block: block }];
  }

  #delta(delta: ContentDelta): MessageStreamEvent {
    return { type: 'content_block_delta', index: this.#index, delta };
  }
}
