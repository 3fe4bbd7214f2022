/**
 * A chat request independent of the protocol: what the request of each protocol is converted to, and how the engine
 * prepares it.
 */
import { prepareChat, type ChatPart, type ChatRequest, type ChatTurn, type GenerateOptions } from '@winnow/engine';
import type { GenerationResult, PrepareOptions } from '@winnow/engine';
import { isRecord, jsonDepth, maxJsonDepth } from '@winnow/tensor';
import { ApiError, badRequest } from '../http/api-error.js';
import { engineApiError } from '../http/error-mapping.js';
import type { GenerativeEntry } from '../models/model-entry.js';
import type { GenerativeModel } from '../options.js';
import { checkPrompt } from './generation-job.js';

export interface ChatCall {
  readonly request: ChatRequest;
  /** Sampling and limits. Constraints of tools and schemas are added. */
  readonly options: GenerateOptions;
  readonly wantsLogprobs?: boolean;
  /** Answers to the prompt. Default 1. */
  readonly numChoices?: number;
  /** Name of the request's conversation, for errors. Default `messages`. */
  readonly promptParam?: string;
}

export interface PreparedChat {
  readonly turn: ChatTurn;
  readonly options: GenerateOptions;
  readonly wantsLogprobs: boolean;
  readonly numChoices: number;
}

/** @throws {ApiError} 400 for unsupported features of the model, and for a prompt that does not fit */
export async function prepareCall(
  { request, options, wantsLogprobs = false, numChoices = 1, promptParam = 'messages' }: ChatCall,
  entry: GenerativeEntry,
  prepareOptions: PrepareOptions,
): Promise<PreparedChat> {
  const turn = await preparedTurn(request, entry, prepareOptions, promptParam);
  const { grammar, jsonSchema } = turn.options;
  if (options.grammar !== undefined && (grammar !== undefined || jsonSchema !== undefined)) {
    throw badRequest('grammar', 'cannot be combined with tools or response_format', 'invalid_value');
  }
  checkPrompt(turn.prompt, entry, promptParam);
  return { turn, wantsLogprobs, numChoices, options: { ...options, ...turn.options } };
}

/** The prompt of a request and the constraints of its answer. */
export async function preparedTurn(
  request: ChatRequest,
  entry: GenerativeEntry,
  options: PrepareOptions,
  promptParam = 'messages',
): Promise<ChatTurn> {
  if (entry.model.chatTemplate === undefined) {
    const message = `The model '${entry.id}' has no chat template; use /v1/completions`;
    throw new ApiError({ status: 400, message, param: 'model', code: 'unsupported_model' });
  }
  try {
    return await prepareChat(entry.model, request, options);
  } catch (error) {
    throw engineApiError(error, promptParam) ?? error;
  }
}

/** A JSON object in a string, as arguments of calls are. @throws {ApiError} 400 for anything else */
export function jsonObjectOf(text: string, path: string): Readonly<Record<string, unknown>> {
  const value = parsedObject(text === '' ? '{}' : text);
  if (value !== undefined) return value;
  throw badRequest(path, `must be a JSON object of at most ${maxJsonDepth} levels as a string`, 'invalid_value');
}

/** The arguments of a call; none if the answer was cut off inside them. */
export function parsedCall({ arguments: text }: Extract<ChatPart, { type: 'tool-call' }>): Record<string, unknown> {
  return parsedObject(text) ?? {};
}

function parsedObject(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = jsonDepth(text) > maxJsonDepth ? undefined : JSON.parse(text);
    return isRecord(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** The stop sequence that ended an answer: the one that follows its text in the text of its tokens. */
export function stopSequenceOf(
  { finishReason, text, tokens }: GenerationResult,
  stops: readonly string[] = [],
  { tokenizer }: GenerativeModel,
): string | undefined {
  if (finishReason !== 'stop') return undefined;
  const said = tokenizer.decode(Int32Array.from(tokens), { skipSpecialTokens: true });
  return stops.find((stop) => said.startsWith(stop, said.indexOf(text) + text.length));
}
