/** `/v1/responses` and stored responses. */
import type { FastifyInstance } from 'fastify';
import { answers } from '../../http/answers.js';
import { ApiError } from '../../http/api-error.js';
import type { Protocol } from '../../http/protocol.js';
import { chooseGenerative } from '../../requests/choose-model.js';
import { prepareCall } from '../../requests/prepared-chat.js';
import { startJob } from '../../requests/generation-job.js';
import { beforeSlot, respond } from '../../requests/respond.js';
import type { ServerContext } from '../../requests/server-context.js';
import { callOf, inputItems } from './request.js';
import { ResponseRun } from './response.js';
import type { InputItem, ResponseRequest } from './schemas.js';
import { ResponseStore, type StoredResponse } from './store.js';

export const responsesProtocol: Protocol = {
  errorBody: (error) => error.toJSON(),
  neutral: { background: false },
};

export function registerResponseRoutes(app: FastifyInstance, context: ServerContext): void {
  const store = new ResponseStore(context.limits.maxStoredBytes);
  registerCreate(app, context, store);
  registerStored(app, context, store);
}

function registerCreate(app: FastifyInstance, context: ServerContext, store: ResponseStore): void {
  app.post(
    '/v1/responses',
    {
      schema: {
        operationId: 'createResponse',
        summary: "Generates the next items of a conversation, with OpenAI's Responses API.",
        tags: ['Responses'],
        body: { $ref: 'ResponseRequest#' },
        response: answers('Response', 'ResponseStreamEvent'),
      },
    },
    async (request, reply) => {
      const body = request.body as ResponseRequest;
      const owner = context.ownerOf(request);
      const { previous_response_id: previousId } = body;
      const previous = previousId === undefined ? [] : storedOf(store, previousId, owner).conversation;
      const entry = await chooseGenerative(context, body.model, reply);
      const chat = await beforeSlot(context, reply, (options) => prepareCall(callOf(body, previous), entry, options));
      const job = await startJob(context, entry, reply);
      const run = new ResponseRun(body, job, (response) => {
        if (body.store === false) return;
        const conversation = [...previous, ...inputItems(body), ...(response.output as InputItem[])];
        store.add({ response, conversation, owner });
      });
      const kind = { isStream: body.stream === true, promptParam: 'input', format: run.format };
      return respond(context, job, reply, kind, {
        whole: () => run.whole(chat, entry.model),
        parts: () => run.parts(chat, entry.model),
      });
    },
  );
}

const params = { type: 'object', properties: { id: { type: 'string' } }, required: ['id'] };

function registerStored(app: FastifyInstance, { ownerOf }: ServerContext, store: ResponseStore): void {
  app.get<{ Params: { id: string } }>(
    '/v1/responses/:id',
    {
      schema: {
        operationId: 'retrieveResponse',
        summary: 'A stored response.',
        tags: ['Responses'],
        params,
        response: answers('Response'),
      },
    },
    (request) => storedOf(store, request.params.id, ownerOf(request)).response,
  );
  app.delete<{ Params: { id: string } }>(
    '/v1/responses/:id',
    {
      schema: {
        operationId: 'deleteResponse',
        summary: 'Forgets a stored response.',
        tags: ['Responses'],
        params,
        response: answers('DeletedResponse'),
      },
    },
    (request) => {
      const { id } = request.params;
      if (!store.delete(id, ownerOf(request))) throw notStored(id);
      return { id, object: 'response', deleted: true };
    },
  );
}

function storedOf(store: ResponseStore, id: string, owner: string | undefined): StoredResponse {
  const stored = store.get(id, owner);
  if (stored === undefined) throw notStored(id);
  return stored;
}

function notStored(id: string): ApiError {
  const message = `Response with id '${id}' not found: it was never stored, or was dropped to make room for later ones`;
  return new ApiError({ status: 404, message, param: 'id', code: 'response_not_found' });
}
