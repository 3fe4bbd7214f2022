/** The routes of Ollama's API, for clients that support no other API. */
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { EmbedOptions } from '@winnow/engine';
import { definedFields } from '@winnow/tensor';
import { modelNotFound } from '../../http/api-error.js';
import { answersOf } from '../../http/answers.js';
import type { GenerativeEntry, ModelEntry } from '../../models/model-entry.js';
import { prepareCall, type PreparedChat } from '../../requests/prepared-chat.js';
import { tokenizePrompt } from '../../requests/completion-response.js';
import { chooseEmbedding, chooseGenerative } from '../../requests/choose-model.js';
import { embedTexts } from '../../requests/embed-texts.js';
import { checkPrompt, startJob } from '../../requests/generation-job.js';
import { beforeSlot, respond } from '../../requests/respond.js';
import type { ServerContext } from '../../requests/server-context.js';
import { keepMsOf } from './keep-alive.js';
import { listedModels, runningModels, shownModel } from './models.js';
import { chatCallOf, generateCallOf, generateOptionsOf, schemaOf, textTurn } from './request.js';
import { ollamaStream } from './errors.js';
import { answerLines, answerOf, nanoseconds, wholeAnswer, type Shape } from './response.js';
import type { OllamaChatRequest, OllamaEmbedRequest, OllamaGenerateRequest, OllamaShowRequest } from './schemas.js';

/** The version of Ollama's API that these routes follow; clients compare it with what they need. */
const apiVersion = '0.12.11';
const answers = answersOf('OllamaError', 'application/x-ndjson');
const tags = ['Ollama'];

/** A name without a tag means the tag `latest`, which clients may add. */
function idOf({ registry }: ServerContext, model: string | undefined): string | undefined {
  const isKnown = registry.entries().some(({ id }) => id === model);
  return isKnown ? model : model?.replace(/:latest$/, '');
}

export function registerOllamaRoutes(app: FastifyInstance, context: ServerContext): void {
  registerChat(app, context);
  registerGenerate(app, context);
  registerEmbed(app, context);
  registerModels(app, context);
}

function registerChat(app: FastifyInstance, context: ServerContext): void {
  app.post(
    '/api/chat',
    {
      schema: {
        operationId: 'ollamaChat',
        summary: "Generates the next message of a conversation, with Ollama's API.",
        tags,
        body: { $ref: 'OllamaChatRequest#' },
        response: answers('OllamaChatResponse', 'OllamaChatResponse'),
      },
    },
    async (request, reply) => {
      const body = request.body as OllamaChatRequest;
      const id = idOf(context, body.model);
      const keepMs = keepMsOf(body.keep_alive);
      if ((body.messages ?? []).length === 0 && keepMs === 0) return unloaded('chat', id, context);
      const entry = await chooseGenerative(context, id, reply, { keepMs });
      if ((body.messages ?? []).length === 0) return loaded('chat', entry);
      const chat = await beforeSlot(context, reply, (options) => prepareCall(chatCallOf(body, entry), entry, options));
      return answer('chat', body.stream !== false, chat, entry, reply, context);
    },
  );
}

function registerGenerate(app: FastifyInstance, context: ServerContext): void {
  app.post(
    '/api/generate',
    {
      schema: {
        operationId: 'ollamaGenerate',
        summary: "Answers a prompt, with Ollama's API.",
        tags,
        body: { $ref: 'OllamaGenerateRequest#' },
        response: answers('OllamaGenerateResponse', 'OllamaGenerateResponse'),
      },
    },
    async (request, reply) => {
      const body = request.body as OllamaGenerateRequest;
      const id = idOf(context, body.model);
      const keepMs = keepMsOf(body.keep_alive);
      if ((body.prompt ?? '') === '' && keepMs === 0) return unloaded('generate', id, context);
      const entry = await chooseGenerative(context, id, reply, { keepMs });
      if ((body.prompt ?? '') === '') return loaded('generate', entry);
      const chat = await beforeSlot(context, reply, (options) =>
        body.raw === true || entry.model.chatTemplate === undefined
          ? rawPrompt(body, entry, options.signal)
          : prepareCall(generateCallOf(body, entry), entry, options),
      );
      return answer('generate', body.stream !== false, chat, entry, reply, context);
    },
  );
}

/** Clients send an empty prompt to load a model. */
function loaded(shape: Shape, { id }: GenerativeEntry): object {
  return { ...answerOf(shape, id, {}), done: true, done_reason: 'load' };
}

/** With `keep_alive: 0` they send it to unload one. A model that was given to the server stays loaded. */
async function unloaded(shape: Shape, name: string | undefined, { registry }: ServerContext): Promise<object> {
  const id = name ?? (await registry.onlyId('generative'));
  const isAvailable = (await registry.pool?.expire(id)) ?? false;
  if (!isAvailable && registry.givenEntry('generative', id) === undefined) throw modelNotFound(id);
  return { ...answerOf(shape, id, {}), done: true, done_reason: 'unload' };
}

async function answer(
  shape: Shape,
  isStream: boolean,
  chat: PreparedChat,
  entry: GenerativeEntry,
  reply: FastifyReply,
  context: ServerContext,
): Promise<unknown> {
  const job = await startJob(context, entry, reply);
  const kind = { isStream, promptParam: shape === 'chat' ? 'messages' : 'prompt', format: ollamaStream };
  return respond<object>(context, job, reply, kind, {
    whole: () => wholeAnswer(shape, job, chat, entry.model),
    parts: () => answerLines(shape, job, chat, entry.model),
  });
}

/** Continues a text as it is. */
async function rawPrompt(
  body: OllamaGenerateRequest,
  entry: GenerativeEntry,
  signal: AbortSignal,
): Promise<PreparedChat> {
  const { prompt = '', system = '' } = body;
  const tokens = await tokenizePrompt(system === '' ? prompt : `${system}\n\n${prompt}`, entry, 'prompt', signal);
  checkPrompt(tokens, entry, 'prompt');
  const jsonSchema = schemaOf(body);
  const options = { ...generateOptionsOf(body, entry), ...(jsonSchema === undefined ? {} : { jsonSchema }) };
  return { turn: textTurn(tokens), options, wantsLogprobs: body.logprobs === true, numChoices: 1 };
}

function registerEmbed(app: FastifyInstance, context: ServerContext): void {
  app.post(
    '/api/embed',
    {
      schema: {
        operationId: 'ollamaEmbed',
        summary: "Turns texts into vectors, with Ollama's API.",
        tags,
        body: { $ref: 'OllamaEmbedRequest#' },
        response: answers('OllamaEmbedResponse'),
      },
    },
    async (request, reply) => {
      const startMs = performance.now();
      const { model, input, truncate = true, dimensions, keep_alive: keepAlive } = request.body as OllamaEmbedRequest;
      const keepMs = keepMsOf(keepAlive);
      const entry = await chooseEmbedding(context, idOf(context, model), reply, { keepMs });
      const options = definedFields<EmbedOptions>({ dimensions, overflow: truncate ? 'truncate' : 'error' });
      const inputs = typeof input === 'string' ? [input] : input;
      const { embedded, numTokens } = await embedTexts(inputs, options, entry, reply, context);
      return {
        model: entry.id,
        embeddings: embedded.map(({ vector }) => Array.from(vector)),
        total_duration: nanoseconds(performance.now() - startMs),
        load_duration: 0,
        prompt_eval_count: numTokens,
      };
    },
  );
}

function registerModels(app: FastifyInstance, context: ServerContext): void {
  const { registry } = context;
  const modifiedAt = new Date().toISOString();
  const schemaOfList = (operationId: string, summary: string): object => ({
    schema: { operationId, summary, tags, response: answers('OllamaModelList') },
  });
  app.get('/api/tags', schemaOfList('ollamaTags', "The models of this server, with Ollama's API."), async () => ({
    models: listedModels(registry.entries(), (await registry.pool?.list()) ?? [], modifiedAt),
  }));
  app.get('/api/ps', schemaOfList('ollamaPs', "The loaded models, with Ollama's API."), () => ({
    models: runningModels(registry, modifiedAt),
  }));
  app.get(
    '/api/version',
    {
      schema: {
        operationId: 'ollamaVersion',
        summary: "Version of Ollama's API.",
        tags,
        response: answers('OllamaVersion'),
      },
    },
    () => ({ version: apiVersion }),
  );
  app.post(
    '/api/show',
    {
      schema: {
        operationId: 'ollamaShow',
        summary: "One model of this server, with Ollama's API.",
        tags,
        body: { $ref: 'OllamaShowRequest#' },
        response: answers('OllamaShowResponse'),
      },
    },
    async (request) => {
      const { model, name } = request.body as OllamaShowRequest;
      const id = idOf(context, model ?? name) ?? (await registry.onlyId('generative'));
      const available = ((await registry.pool?.list()) ?? []).map((each) => each.available);
      const found = available.find((each) => [each.id, ...(each.aliases ?? [])].includes(id));
      const entries: ModelEntry[] = registry.entries().filter((entry) => entry.id === (found?.id ?? id));
      if (entries.length === 0 && found === undefined) throw modelNotFound(id);
      return shownModel(entries, modifiedAt);
    },
  );
}
