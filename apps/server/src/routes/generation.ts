/** `/v1/chat/completions` and `/v1/completions` */
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { Readable } from 'node:stream';
import { internalError, type ApiError } from '../http/api-error.js';
import { prepareChatRequest } from '../requests/chat-request.js';
import { chatCompletion, chatEvents } from '../requests/chat-response.js';
import { completion, completionEvents, prepareCompletion } from '../requests/completion-response.js';
import { engineApiError } from '../http/error-mapping.js';
import { eventOf, eventStreamHeaders, openEventStream } from '../http/event-stream.js';
import { startJob, type GenerationJob } from '../requests/generation-job.js';
import type { ChatCompletionRequest } from '../schemas/chat.js';
import type { CompletionRequest } from '../schemas/completions.js';
import { answers } from './answers.js';
import { openScope } from '../requests/request-scope.js';
import type { ServerContext } from '../requests/server-context.js';

/** The two kinds of responses to a request. */
interface Answer<T> {
  readonly whole: () => Promise<T>;
  readonly parts: () => AsyncGenerator<string, void, void>;
}

export function registerGenerationRoutes(app: FastifyInstance, context: ServerContext): void {
  const responder = new Responder(context);
  registerChatRoute(app, context, responder);
  registerCompletionRoute(app, context, responder);
}

/** Responds at once or as an event stream, with the engine's errors in the API's format. */
class Responder {
  readonly #context: ServerContext;

  constructor(context: ServerContext) {
    this.#context = context;
  }

  async answer<T>(
    job: GenerationJob,
    reply: FastifyReply,
    isStream: boolean,
    promptParam: string,
    { whole, parts }: Answer<T>,
  ): Promise<T | Readable> {
    try {
      if (!isStream) {
        try {
          return await whole();
        } finally {
          job.end();
        }
      }
      const stream = await openEventStream(parts(), {
        ...this.#context.limits,
        onBlocked: job.setBlocked,
        lastEvent: (error) => eventOf(this.#knownError(error, promptParam).toJSON()),
      });
      void reply.headers(eventStreamHeaders);
      return stream;
    } catch (error) {
      throw engineApiError(error, promptParam) ?? error;
    }
  }

  #knownError(error: unknown, promptParam: string): ApiError {
    const known = engineApiError(error, promptParam);
    if (known !== undefined) return known;
    this.#context.reportError(error);
    return internalError(error);
  }
}

/** What is done before the request waits for a slot, until its client disconnects. */
async function prepared<T>(
  { limits, shutdown }: ServerContext,
  reply: FastifyReply,
  prepare: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const scope = openScope(reply, limits.requestTimeoutMs, shutdown);
  try {
    return await prepare(scope.signal);
  } finally {
    scope.end();
  }
}

function registerChatRoute(app: FastifyInstance, context: ServerContext, responder: Responder): void {
  app.post(
    '/v1/chat/completions',
    {
      schema: {
        operationId: 'createChatCompletion',
        summary: 'Generates the next message of a conversation.',
        tags: ['Generation'],
        body: { $ref: 'ChatCompletionRequest#' },
        response: answers('ChatCompletion', 'ChatCompletionChunk'),
      },
    },
    async (request, reply) => {
      const body = request.body as ChatCompletionRequest;
      const entry = context.registry.generative(body.model);
      const chat = await prepared(context, reply, (signal) =>
        prepareChatRequest(body, entry, { signal, compileTimeoutMs: context.limits.compileTimeoutMs }),
      );
      const job = await startJob(context, entry, reply);
      const includeUsage = body.stream_options?.include_usage === true;
      return responder.answer(job, reply, body.stream === true, 'messages', {
        whole: () => chatCompletion(job, chat, entry.model),
        parts: () => chatEvents(job, chat, entry.model, includeUsage),
      });
    },
  );
}

function registerCompletionRoute(app: FastifyInstance, context: ServerContext, responder: Responder): void {
  app.post(
    '/v1/completions',
    {
      schema: {
        operationId: 'createCompletion',
        summary: 'Continues texts.',
        tags: ['Generation'],
        body: { $ref: 'CompletionRequest#' },
        response: answers('Completion', 'Completion'),
      },
    },
    async (request, reply) => {
      const body = request.body as CompletionRequest;
      const entry = context.registry.generative(body.model);
      const task = await prepared(context, reply, (signal) => prepareCompletion(body, entry, signal));
      const job = await startJob(context, entry, reply);
      const includeUsage = body.stream_options?.include_usage === true;
      return responder.answer(job, reply, body.stream === true, 'prompt', {
        whole: () => completion(job, task, entry.model),
        parts: () => completionEvents(job, task, entry.model, includeUsage),
      });
    },
  );
}
