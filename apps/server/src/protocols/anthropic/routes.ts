/** `/v1/messages` and `/v1/messages/count_tokens` */
import type { FastifyInstance } from 'fastify';
import { answersOf } from '../../http/answers.js';
import { chooseGenerative } from '../../requests/choose-model.js';
import { prepareCall, preparedTurn } from '../../requests/prepared-chat.js';
import { startJob } from '../../requests/generation-job.js';
import { beforeSlot, respond } from '../../requests/respond.js';
import type { ServerContext } from '../../requests/server-context.js';
import { messageStream } from './errors.js';
import { callOf, chatRequestOf } from './request.js';
import { message, messageEvents } from './response.js';
import type { CountTokensRequest, MessageRequest } from './schemas.js';

export function registerAnthropicRoutes(app: FastifyInstance, context: ServerContext): void {
  registerMessages(app, context);
  registerCountTokens(app, context);
}

const answers = answersOf('MessageError');

function registerMessages(app: FastifyInstance, context: ServerContext): void {
  app.post(
    '/v1/messages',
    {
      schema: {
        operationId: 'createMessage',
        summary: "Generates the next message of a conversation, with Anthropic's API.",
        tags: ['Anthropic'],
        body: { $ref: 'MessageRequest#' },
        response: answers('Message', 'MessageStreamEvent'),
      },
    },
    async (request, reply) => {
      const body = request.body as MessageRequest;
      const entry = await chooseGenerative(context, body.model, reply);
      const chat = await beforeSlot(context, reply, (options) => prepareCall(callOf(body), entry, options));
      const job = await startJob(context, entry, reply);
      const response = { isStream: body.stream === true, promptParam: 'messages', format: messageStream };
      return respond(context, job, reply, response, {
        whole: () => message(job, chat, entry.model),
        parts: () => messageEvents(job, chat, entry.model),
      });
    },
  );
}

function registerCountTokens(app: FastifyInstance, context: ServerContext): void {
  app.post(
    '/v1/messages/count_tokens',
    {
      schema: {
        operationId: 'countMessageTokens',
        summary: 'Counts the tokens of a prompt, with its tools.',
        tags: ['Anthropic'],
        body: { $ref: 'CountTokensRequest#' },
        response: answers('CountTokensResponse'),
      },
    },
    async (request, reply) => {
      const body = request.body as CountTokensRequest;
      const entry = await chooseGenerative(context, body.model, reply);
      const turn = await beforeSlot(context, reply, (options) => preparedTurn(chatRequestOf(body), entry, options));
      return { input_tokens: turn.prompt.length };
    },
  );
}
