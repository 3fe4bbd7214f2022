/** Converts an answer to a response of the Responses API: complete, or as its events. */
import type { GenerationResult } from '@winnow/engine';
import { namedEventOf, openAiStream, type StreamFormat } from '../../http/event-stream.js';
import type { GenerativeModel } from '../../options.js';
import type { PreparedChat } from '../../requests/prepared-chat.js';
import { chatSteps, isCutOff } from '../../requests/answer-steps.js';
import type { GenerationJob } from '../../requests/generation-job.js';
import { errorEvent } from './errors.js';
import { OutputWriter, type OutputEvent } from './output.js';
import type { ResponseObject, ResponseRequest, ResponseStreamEvent } from './schemas.js';

/** One request: the answer, its numbered events, and what is done with the response. */
export class ResponseRun {
  readonly #body: ResponseRequest;
  readonly #job: GenerationJob;
  readonly #writer: OutputWriter;
  readonly #keep: (response: ResponseObject) => void;
  #numEvents = 0;

  /** @param keep called with the whole response */
  constructor(body: ResponseRequest, job: GenerationJob, keep: (response: ResponseObject) => void) {
    this.#body = body;
    this.#job = job;
    this.#writer = new OutputWriter(job.requestId);
    this.#keep = keep;
  }

  get format(): StreamFormat {
    return {
      ...openAiStream,
      lastEvent: (error) => this.#eventOf(errorEvent(error)),
    };
  }

  async whole(chat: PreparedChat, model: GenerativeModel): Promise<ResponseObject> {
    const outputs = this.#outputs(chat, model);
    for (;;) {
      const { done, value } = await outputs.next();
      if (done === true) return this.#end(value);
    }
  }

  /** The events of the response; ends the job. */
  async *parts(chat: PreparedChat, model: GenerativeModel): AsyncGenerator<string, void, void> {
    const outputs = this.#outputs(chat, model);
    let hasStarted = false;
    try {
      for (;;) {
        const { done, value } = await outputs.next();
        if (!hasStarted) {
          const response = this.#response();
          yield this.#eventOf({ type: 'response.created', response });
          yield this.#eventOf({ type: 'response.in_progress', response });
          hasStarted = true;
        }
        if (done !== true) {
          for (const event of value) yield this.#eventOf(event);
          continue;
        }
        const response = this.#end(value);
        const type = response.status === 'incomplete' ? 'response.incomplete' : 'response.completed';
        yield this.#eventOf({ type, response });
        return;
      }
    } finally {
      await outputs.return(undefined as never);
      this.#job.end();
    }
  }

  /** The events of each token. Logprobs of tokens without text go to the next one with text. */
  async *#outputs(chat: PreparedChat, model: GenerativeModel): AsyncGenerator<OutputEvent[], GenerationResult, void> {
    const steps = chatSteps(this.#job, chat, model);
    let pending: Parameters<OutputWriter['eventsOf']>[1] = [];
    try {
      for (;;) {
        const { done, value } = await steps.next();
        if (done === true) {
          yield this.#writer.end(isCutOff(value.finishReason) ? 'incomplete' : 'completed');
          return value;
        }
        pending.push(...value.logprobs);
        const events = value.parts.flatMap((part) => {
          const logprobs = part.type === 'text' ? pending : [];
          if (part.type === 'text') pending = [];
          return this.#writer.eventsOf(part, logprobs);
        });
        yield events;
      }
    } finally {
      await steps.return(undefined as never);
    }
  }

  #eventOf(event: OutputEvent): string {
    const numbered = { ...event, sequence_number: this.#numEvents++ } as ResponseStreamEvent;
    return namedEventOf(numbered.type, numbered);
  }

  #end(result: GenerationResult): ResponseObject {
    const response = this.#response(result);
    this.#keep(response);
    return response;
  }

  #response(result?: GenerationResult): ResponseObject {
    const body = this.#body;
    const isIncomplete = result !== undefined && isCutOff(result.finishReason);
    return {
      id: `resp_${this.#job.requestId}`,
      object: 'response',
      created_at: this.#job.created,
      completed_at: result === undefined || isIncomplete ? null : Math.floor(Date.now() / 1000),
      status: result === undefined ? 'in_progress' : isIncomplete ? 'incomplete' : 'completed',
      error: null,
      incomplete_details: isIncomplete ? { reason: 'max_output_tokens' } : null,
      model: this.#job.model,
      output: [...this.#writer.items],
      usage: result === undefined ? null : usageOf(result),
      instructions: body.instructions ?? null,
      previous_response_id: body.previous_response_id ?? null,
      store: body.store ?? true,
      max_output_tokens: body.max_output_tokens ?? null,
      temperature: body.temperature ?? null,
      top_p: body.top_p ?? null,
      parallel_tool_calls: body.parallel_tool_calls ?? true,
      tools: body.tools ?? [],
      tool_choice: body.tool_choice ?? 'auto',
      text: { format: body.text?.format ?? { type: 'text' } },
      reasoning: body.reasoning ?? { effort: null, summary: null },
      truncation: 'disabled',
      metadata: body.metadata ?? {},
    };
  }
}

function usageOf({ promptTokens, cachedTokens, tokens }: GenerationResult): NonNullable<ResponseObject['usage']> {
  return {
    input_tokens: promptTokens,
    input_tokens_details: { cached_tokens: cachedTokens },
    output_tokens: tokens.length,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: promptTokens + tokens.length,
  };
}
