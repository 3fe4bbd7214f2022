/** `/v1/models`, `/health`, `/slots`, `/metrics` and the OpenAPI document. */
import { Type } from 'typebox';
import type { FastifyInstance } from 'fastify';
import { modelNotFound } from '../http/api-error.js';
import type { ModelEntry } from '../models/model-entry.js';
import type { ModelRegistry } from '../models/model-registry.js';
import type { GenerativeModel } from '../options.js';
import type { ServerContext } from '../requests/server-context.js';
import type { ModelObject, SlotList } from '../schemas/status.js';
import { answers, plainAnswer } from '../http/answers.js';

export function registerStatusRoutes(app: FastifyInstance, context: ServerContext): void {
  registerModelRoutes(app, context);
  registerMonitoringRoutes(app, context);
  app.get('/openapi.json', { schema: { hide: true } }, () => app.swagger());
}

function registerModelRoutes(app: FastifyInstance, { registry }: ServerContext): void {
  const created = Math.floor(Date.now() / 1000);

  app.get(
    '/v1/models',
    {
      schema: {
        operationId: 'listModels',
        summary: 'The models of this server.',
        tags: ['Models'],
        response: plainAnswer('ModelList'),
      },
    },
    async () => ({ object: 'list', data: await modelObjects(registry, created) }),
  );

  app.get<{ Params: { model: string } }>(
    '/v1/models/:model',
    {
      schema: {
        operationId: 'retrieveModel',
        summary: 'One model of this server.',
        tags: ['Models'],
        params: Type.Object({ model: Type.String() }),
        response: answers('Model'),
      },
    },
    async ({ params }) => {
      const named = ({ id, aliases = [] }: ModelObject): boolean => [id, ...aliases].includes(params.model);
      const found = (await modelObjects(registry, created)).find(named);
      if (found === undefined) throw modelNotFound(params.model);
      return found;
    },
  );
}

function registerMonitoringRoutes(
  app: FastifyInstance,
  { registry, metrics, readQueues, isClosing }: ServerContext,
): void {
  app.get(
    '/health',
    {
      schema: {
        operationId: 'health',
        summary: 'Whether the server accepts requests; needs no API key.',
        tags: ['Status'],
        security: [],
        response: plainAnswer('Health'),
      },
      config: { isPublic: true },
    },
    (_request, reply) => {
      if (!isClosing()) return { status: 'ok' };
      void reply.status(503);
      return { status: 'closing' };
    },
  );

  app.get(
    '/slots',
    {
      schema: {
        operationId: 'listSlots',
        summary: 'The state of each slot, in numbers.',
        tags: ['Status'],
        response: plainAnswer('SlotList'),
      },
    },
    () => registry.entries().flatMap(slotList),
  );

  app.get(
    '/metrics',
    {
      schema: {
        operationId: 'metrics',
        summary: 'Metrics in the Prometheus text format.',
        tags: ['Status'],
        response: { 200: { description: 'The metrics.', content: { 'text/plain': { schema: { type: 'string' } } } } },
      },
    },
    async (_request, reply) => {
      const exposition = metrics.exposition(await readQueues());
      return reply.type('text/plain; version=0.0.4; charset=utf-8').send(exposition);
    },
  );
}

/** A model of several kinds is listed once. */
async function modelObjects(registry: ModelRegistry, created: number): Promise<ModelObject[]> {
  const objects = new Map<string, ModelObject>();
  const available = (await registry.pool?.list()) ?? [];
  for (const { available: model, state: value } of available) {
    const { id, aliases } = model;
    const listed: ModelObject = {
      id,
      object: 'model',
      created,
      owned_by: 'winnow',
      capabilities: [],
      status: { value },
    };
    objects.set(id, aliases === undefined || aliases.length === 0 ? listed : { ...listed, aliases: [...aliases] });
  }
  for (const entry of registry.entries()) {
    const { id, kind, model } = entry;
    const known = objects.get(id);
    const own: ModelObject['capabilities'] = kind === 'generative' ? generativeCapabilities(entry.model) : [kind];
    objects.set(id, {
      ...known,
      id,
      object: 'model',
      created,
      owned_by: 'winnow',
      context_length: known?.context_length ?? model.contextSize,
      capabilities: [...(known?.capabilities ?? []), ...own],
      status: { value: 'loaded' },
    });
  }
  return [...objects.values()];
}

function generativeCapabilities({ chatTemplate, imageToken }: GenerativeModel): ModelObject['capabilities'] {
  const chat = chatTemplate === undefined ? [] : (['chat'] as const);
  const vision = imageToken === undefined ? [] : (['vision'] as const);
  return [...chat, 'completion', ...vision];
}

function slotList({ id: model, slots }: ModelEntry): SlotList {
  return slots.activities.map((activity, id) => ({
    id,
    model,
    state: activity?.state ?? 'idle',
    request_id: activity?.requestId ?? null,
    running_ms: activity === undefined ? 0 : Math.max(0, Math.round(performance.now() - activity.startedMs)),
    prompt_tokens: activity?.promptTokens ?? 0,
    processed_tokens: activity?.processedTokens ?? 0,
    generated_tokens: activity?.generatedTokens ?? 0,
  }));
}
