/** The worker: loads models and answers chats. Calls have ids and may overlap. */
import { demoModelUrl } from '@winnow/demo-model';
import {
  formatPrometheusModels,
  loadModel,
  prepareChat,
  type ChatMessage,
  type ChatRequest,
  type GenerateOptions,
  type GeneratedToken,
  type LoadOptions,
  type Model,
  type ModelLocation,
  type ToolCallPart,
} from '@winnow/engine';
import { blobFolder } from '@winnow/hub';
import { WinnowError } from '@winnow/tensor';
import {
  errorText,
  type AnswerToken,
  type ChatCall,
  type ChatEvent,
  type LoadProgress,
  type LoadSettings,
  type ModelChoice,
  type ModelSource,
  type PromptMessage,
  type Tool,
} from '../backend/contract.js';
import { bytesOfDataUrl } from '../backend/data-url.js';
import { cachedModels, openCached, removeCached } from './model-cache.js';
import type { FromWorker, ToWorker, WorkerCall } from '../backend/worker-protocol.js';

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

function choiceOf(id: string, { contextSize, chatTemplate, imageToken, notices }: Model): ModelChoice {
  return { id, contextSize, canChat: chatTemplate !== undefined, takesImages: imageToken !== undefined, notices };
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
    messages: call.messages.map(messageOf),
    ...(call.tools === undefined ? {} : { tools: call.tools }),
    ...(call.requiresCall === true ? { toolChoice: 'required' } : {}),
    ...(call.jsonSchema === undefined ? {} : { jsonSchema: call.jsonSchema }),
  };
  const turn = await prepareChat(used, request, { signal });
  const reader = turn.createReader();
  const calls: ToolCallPart[] = [];
  const send = (parts: ReturnType<typeof reader.end>): void => {
    for (const part of parts) {
      if (part.type === 'text' || part.type === 'reasoning') sendEvent(part);
      else if (part.type === 'tool-call-start') sendEvent({ type: 'call-start', name: part.name });
      else if (part.type === 'tool-call') calls.push(part);
    }
  };
  const generation = used.generate(turn.prompt, { ...generateOptionsOf(call), ...turn.options, signal });
  for await (const token of generation) {
    if (token.text !== '') send(reader.push(token.text));
    if (call.numAlternatives !== undefined) sendEvent({ type: 'tokens', tokens: [tokenOf(token, used)] });
  }
  send(reader.end());
  const { finishReason, promptTokens, cachedTokens, tokens } = await generation.result();
  sendEnd(calls, finishReason === 'length' || finishReason === 'context', sendEvent);
  sendEvent({ type: 'usage', usage: { promptTokens, cachedTokens, answerTokens: tokens.length } });
}

/** Calls of an answer that was cut inside one are not made. */
function sendEnd(calls: readonly ToolCallPart[], isCut: boolean, sendEvent: CallContext['sendEvent']): void {
  const hasCalls = calls.length > 0 && calls.every(({ isComplete }) => isComplete);
  if (hasCalls) {
    sendEvent({ type: 'calls', calls: calls.map(({ id, name, arguments: text }) => ({ id, name, arguments: text })) });
  }
  sendEvent({ type: 'end', reason: hasCalls ? 'tool_calls' : isCut ? 'length' : 'stop' });
}

function messageOf(message: PromptMessage): ChatMessage {
  if (message.role === 'user' && message.images !== undefined) {
    return { ...message, images: message.images.map(bytesOfDataUrl) };
  }
  if (message.role !== 'assistant' || message.toolCalls === undefined) return message as ChatMessage;
  const toolCalls = message.toolCalls.map((call) => ({
    ...call,
    arguments: JSON.parse(call.arguments) as Record<string, unknown>,
  }));
  return { ...message, toolCalls };
}

async function toolFault(id: string, tool: Tool, signal: AbortSignal): Promise<string | undefined> {
  try {
    const messages = [{ role: 'user', content: 'Hello' }];
    await prepareChat(loadedModel(id), { messages, tools: [tool] }, { signal });
    return undefined;
  } catch (error) {
    if (!WinnowError.isInstance(error)) throw error;
    return error.message;
  }
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
    case 'tool-fault':
      return toolFault(call.model, call.tool, context.signal);
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
