/** `/v1/batches` */
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { BatchService } from '../batches/batch-service.js';
import { answers } from '../http/answers.js';
import { ListQuery, type BatchRequest } from '../schemas/batches.js';
import { notFound } from './files.js';

const params = { type: 'object', properties: { id: { type: 'string' } }, required: ['id'] };
const idOf = (request: FastifyRequest): string => (request.params as { id: string }).id;
const tags = ['Batches'];

type OwnerOf = (request: FastifyRequest) => string | undefined;

export function registerBatchRoutes(app: FastifyInstance, service: BatchService, ownerOf: OwnerOf): void {
  registerChanges(app, service, ownerOf);
  registerReads(app, service, ownerOf);
}

function registerChanges(app: FastifyInstance, service: BatchService, ownerOf: OwnerOf): void {
  app.post(
    '/v1/batches',
    {
      schema: {
        operationId: 'createBatch',
        summary: 'Answers the requests of an uploaded file.',
        tags,
        body: { $ref: 'BatchRequest#' },
        response: answers('Batch'),
      },
    },
    (request) => service.create(request.body as BatchRequest, ownerOf(request)),
  );
  app.post(
    '/v1/batches/:id/cancel',
    {
      schema: {
        operationId: 'cancelBatch',
        summary: 'Cancels the lines that have not ended.',
        tags,
        params,
        response: answers('Batch'),
      },
    },
    async (request) => (await service.cancel(idOf(request), ownerOf(request))) ?? notFound('Batch', idOf(request)),
  );
}

function registerReads(app: FastifyInstance, service: BatchService, ownerOf: OwnerOf): void {
  app.get(
    '/v1/batches',
    {
      schema: {
        operationId: 'listBatches',
        summary: 'Your batches.',
        tags,
        querystring: ListQuery,
        response: answers('BatchList'),
      },
    },
    (request) => {
      const { after, limit, order } = request.query as ListQuery;
      return service.page(ownerOf(request), { after, order, limit: limit === undefined ? undefined : Number(limit) });
    },
  );
  app.get(
    '/jobs',
    {
      schema: {
        operationId: 'jobs',
        summary: 'Queues and workers, and your batches that have not ended, with their rates.',
        tags: ['Status'],
        response: answers('JobOverview'),
      },
    },
    (request) => service.overview(ownerOf(request)),
  );
  app.get(
    '/v1/batches/:id',
    {
      schema: {
        operationId: 'retrieveBatch',
        summary: 'One of your batches.',
        tags,
        params,
        response: answers('Batch'),
      },
    },
    async (request) => (await service.get(idOf(request), ownerOf(request))) ?? notFound('Batch', idOf(request)),
  );
}
