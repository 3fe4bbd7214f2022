/** The worker: loads models and answers chats. Calls have ids and may overlap. */
import { demoModelUrl } from '@winnow/demo-model';
import {
  formatPrometheusModels,
  loadModel,
  prepareChat,
  type ChatRequest,
  type GenerateOptions,
  type GeneratedToken,
  type LoadOptions,
  type Model,
  type ModelLocation,
} from '@winnow/engine';
import { blobFolder } from '@winnow/hub';
import {
  errorText,
  type AnswerToken,
  type ChatCall,
  type ChatEvent,
  type LoadProgress,
  type LoadSettings,
  type ModelChoice,
  type ModelSource,
} from '../backend/contract.js';
import { cachedModels, openCached, removeCached } from './model-cache.js';
import type { FromWorker, ToWorker, WorkerCall } from './protocol.js';

interface WorkerScope {
  postMessage(message: FromWorker): void;
  addEventListener(type: 'message', listener: (event: MessageEvent<ToWorker>) => void): void;
}

const scope = self as unknown as WorkerScope;
const running = new Map<number, AbortController>();
/** By id; the one that was loaded last is the last one. */
const models = new Map<string, Model>();

/** What a call may do besides its result. */
interface CallContext {
  readonly signal: AbortSignal;
  readonly sendEvent: (event: ChatEvent) => void;
  readonly sendProgress: (progress: LoadProgress) => void;
}

async function locate(source: ModelSource, { signal, sendProgress }: CallContext): Promise<ModelLocation> {
  if (source.kind === 'demo') return demoModelUrl.href;
  if (source.kind === 'hub') return openCached(source, { signal, onProgress: sendProgress });
  const [first] = source.files;
  if (first === undefined) throw new Error('no file was chosen');
  if (source.files.length === 1) return first;
  const named = source.files.map((file) => [pathInFolder(file), file] as const);
  return blobFolder(new Map(named), 'the chosen files');
}

/** Of a file from a folder that the user chose, its path below this folder. */
function pathInFolder({ name, webkitRelativePath: path }: File): string {
  return path === '' ? name : path.slice(path.indexOf('/') + 1);
}

async function load(source: ModelSource, settings: LoadSettings, context: CallContext): Promise<ModelChoice> {
  const location = await locate(source, context);
  const { keepsOthers = false, ...loadSettings } = settings;
  if (!keepsOthers) await disposeAll();
  const options: LoadOptions = {
    ...loadSettings,
    trace: { visitedKeys: true },
    signal: context.signal,
    onProgress: ({ loadedBytes, totalBytes }) => context.sendProgress({ what: 'load', loadedBytes, totalBytes }),
  };
  const model = await loadModel(location, options);
  const id = idOf(source, settings, model);
  await models.get(id)?.dispose();
  models.delete(id);
  models.set(id, model);
  return choiceOf(id, model);
}

/** Models that differ only in their policy have different ids. */
function idOf(source: ModelSource, { attention }: LoadSettings, { name }: Model): string {
  const id = source.kind === 'demo' ? 'winnow-tiny' : source.kind === 'hub' ? source.address : name;
  return attention === undefined ? id : `${id} (${attention})`;
}

function choiceOf(id: string, { contextSize, chatTemplate, notices }: Model): ModelChoice {
  return { id, contextSize, canChat: chatTemplate !== undefined, notices };
}

async function disposeAll(): Promise<void> {
  for (const model of models.values()) await model.dispose();
  models.clear();
}

function loadedModel(id: string): Model {
  const model = models.get(id);
  if (model === undefined) throw new Error(`no model ${id} is loaded`);
  return model;
}

/** What the engine measures, and what it planned to use. */
function metrics(): string {
  return formatPrometheusModels(
    Array.from(models, ([id, model]) => ({
      metrics: { ...model.metrics(), plan: model.plan },
      labels: { model: id },
    })),
  );
}

function generateOptionsOf({ sampling, numAlternatives }: ChatCall): GenerateOptions {
  const given = Object.entries(sampling).filter(([, value]) => value !== undefined);
  const counted = numAlternatives === undefined ? {} : { numTopLogprobs: numAlternatives };
  return { ...(Object.fromEntries(given) as GenerateOptions), ...counted };
}

async function chat(call: ChatCall, { signal, sendEvent }: CallContext): Promise<void> {
  const used = loadedModel(call.model);
  const request: ChatRequest = {
    messages: call.messages,
    ...(call.jsonSchema === undefined ? {} : { jsonSchema: call.jsonSchema }),
  };
  const turn = await prepareChat(used, request, { signal });
  const reader = turn.createReader();
  const send = (parts: ReturnType<typeof reader.end>): void => {
    for (const part of parts) if (part.type === 'text' || part.type === 'reasoning') sendEvent(part);
  };
  const generation = used.generate(turn.prompt, { ...generateOptionsOf(call), ...turn.options, signal });
  for await (const token of generation) {
    if (token.text !== '') send(reader.push(token.text));
    if (call.numAlternatives !== undefined) sendEvent({ type: 'tokens', tokens: [tokenOf(token, used)] });
  }
  send(reader.end());
  const { finishReason, promptTokens, cachedTokens, tokens } = await generation.result();
  const isCut = finishReason === 'length' || finishReason === 'context';
  sendEvent({ type: 'end', reason: isCut ? 'length' : 'stop' });
  sendEvent({ type: 'usage', usage: { promptTokens, cachedTokens, answerTokens: tokens.length } });
}

function tokenOf({ tokenId, logprob, topLogprobs }: GeneratedToken, { tokenizer }: Model): AnswerToken {
  const textOf = (id: number): string => tokenizer.decode([id], { skipSpecialTokens: false });
  const alternatives = topLogprobs.map((other) => ({ text: textOf(other.tokenId), logprob: other.logprob }));
  return { text: textOf(tokenId), logprob, alternatives };
}

function run(call: WorkerCall, context: CallContext): Promise<unknown> | unknown {
  switch (call.type) {
    case 'load':
      return load(call.source, call.settings, context);
    case 'chat':
      return chat(call.call, context);
    case 'count-tokens':
      return loadedModel(call.model).tokenizer.encode(call.text, { addSpecialTokens: false }).length;
    case 'metrics':
      return metrics();
    case 'models':
      return Array.from(models, ([id, model]) => choiceOf(id, model));
    case 'cached':
      return cachedModels();
    case 'remove':
      return removeCached(call.name);
  }
}

async function answer(id: number, call: WorkerCall): Promise<void> {
  const controller = new AbortController();
  running.set(id, controller);
  const context: CallContext = {
    signal: controller.signal,
    sendEvent: (event) => scope.postMessage({ id, type: 'event', event }),
    sendProgress: (progress) => scope.postMessage({ id, type: 'progress', progress }),
  };
  try {
    scope.postMessage({ id, type: 'result', result: await run(call, context) });
  } catch (error) {
    scope.postMessage({ id, type: 'error', message: errorText(error) });
  } finally {
    running.delete(id);
  }
}

scope.addEventListener('message', ({ data }) => {
  if ('call' in data) void answer(data.id, data.call);
  else running.get(data.id)?.abort();
});
