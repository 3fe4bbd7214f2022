/** `/v1/chat/completions` and `/v1/completions` */
import type { FastifyInstance } from 'fastify';
import { answers } from '../http/answers.js';
import { openAiStream } from '../http/event-stream.js';
import { chooseGenerative } from '../requests/choose-model.js';
import { prepareChatRequest } from '../requests/chat-request.js';
import { chatCompletion, chatEvents } from '../requests/chat-response.js';
import { completion, completionEvents, prepareCompletion } from '../requests/completion-response.js';
import { startJob } from '../requests/generation-job.js';
import { beforeSlot, respond } from '../requests/respond.js';
import type { ServerContext } from '../requests/server-context.js';
import type { ChatCompletionRequest } from '../schemas/chat.js';
import type { CompletionRequest } from '../schemas/completions.js';

export function registerGenerationRoutes(app: FastifyInstance, context: ServerContext): void {
  registerChatRoute(app, context);
  registerCompletionRoute(app, context);
}

function registerChatRoute(app: FastifyInstance, context: ServerContext): void {
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
      const entry = await chooseGenerative(context, body.model, reply);
      const chat = await beforeSlot(context, reply, (options) => prepareChatRequest(body, entry, options));
      const job = await startJob(context, entry, reply);
      const includeUsage = body.stream_options?.include_usage === true;
      const kind = { isStream: body.stream === true, promptParam: 'messages', format: openAiStream };
      return respond(context, job, reply, kind, {
        whole: () => chatCompletion(job, chat, entry.model),
        parts: () => chatEvents(job, chat, entry.model, includeUsage),
      });
    },
  );
}

function registerCompletionRoute(app: FastifyInstance, context: ServerContext): void {
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
      const entry = await chooseGenerative(context, body.model, reply);
      const task = await beforeSlot(context, reply, ({ signal }) => prepareCompletion(body, entry, signal));
      const job = await startJob(context, entry, reply);
      const includeUsage = body.stream_options?.include_usage === true;
      const kind = { isStream: body.stream === true, promptParam: 'prompt', format: openAiStream };
      return respond(context, job, reply, kind, {
        whole: () => completion(job, task, entry.model),
        parts: () => completionEvents(job, task, entry.model, includeUsage),
      });
    },
  );
}
