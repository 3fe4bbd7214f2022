/** The home of `winnow serve`: its API at the address of the page. */
import { EventSourceParserStream } from 'eventsource-parser/stream';
import {
  ChatError,
  type ErrorCode,
  type AnswerToken,
  type ChatBackend,
  type ChatCall,
  type ChatEvent,
  type ModelChoice,
  type PromptMessage,
  type Tool,
  type ToolCall,
} from './contract.js';

interface ModelList {
  readonly data: readonly {
    readonly id: string;
    readonly context_length?: number;
    /** Empty until the model is loaded. */
    readonly capabilities: readonly string[];
  }[];
}

interface LogprobEntry {
  readonly token: string;
  readonly logprob: number;
  readonly top_logprobs: readonly { readonly token: string; readonly logprob: number }[];
}

/** The first one of a call has its id and its name; the texts of all make up the arguments. */
interface CallDelta {
  readonly index: number;
  readonly id?: string;
  readonly function: { readonly name?: string; readonly arguments?: string };
}

interface Chunk {
  readonly error?: { readonly message: string };
  readonly choices?: readonly {
    readonly delta: {
      readonly content?: string;
      readonly reasoning_content?: string;
      readonly tool_calls?: readonly CallDelta[];
    };
    readonly logprobs?: { readonly content: readonly LogprobEntry[] } | null;
    readonly finish_reason: 'stop' | 'length' | 'tool_calls' | null;
  }[];
  readonly usage?: {
    readonly prompt_tokens: number;
    readonly completion_tokens: number;
    readonly prompt_tokens_details: { readonly cached_tokens: number };
  } | null;
}

const jsonPost = { method: 'POST', headers: { 'content-type': 'application/json' } };

export interface ServedOptions {
  /** Where the page lies; the API is beside it. */
  readonly baseUrl: string;
  readonly apiKey: () => string;
}

export function createServedBackend({ baseUrl, apiKey }: ServedOptions): ChatBackend {
  async function request(path: string, init: RequestInit): Promise<Response> {
    const key = apiKey();
    const headers = new Headers(init.headers);
    if (key !== '') headers.set('authorization', `Bearer ${key}`);
    const response = await fetch(new URL(path, baseUrl), { ...init, headers });
    if (response.ok) return response;
    throw new ChatError(codeOf(response.status), await messageOf(response));
  }

  return {
    async models(): Promise<readonly ModelChoice[]> {
      const { data } = (await (await request('v1/models', {})).json()) as ModelList;
      return data.map(({ id, context_length: contextSize, capabilities }) => {
        const canChat = capabilities.length === 0 || capabilities.includes('chat');
        const takesImages = capabilities.length === 0 ? undefined : capabilities.includes('vision');
        return { id, contextSize, canChat, takesImages, notices: [] };
      });
    },
    async *chat(call, signal) {
      const response = await request('v1/chat/completions', {
        ...jsonPost,
        body: JSON.stringify(bodyOf(call)),
        signal,
      });
      yield* eventsOf(response);
    },
    async toolFault(model, tool, signal) {
      const body = JSON.stringify({ model, messages: [{ role: 'user', content: 'Hello' }], tools: [wireTool(tool)] });
      try {
        await (await request('apply-template', { ...jsonPost, body, signal })).body?.cancel();
        return undefined;
      } catch (error) {
        if (error instanceof ChatError && error.code === 'rejected') return error.message;
        throw error;
      }
    },
    async countTokens(model, content) {
      const body = JSON.stringify({ model, content });
      const response = await request('tokenize', { ...jsonPost, body });
      return ((await response.json()) as { readonly tokens: readonly number[] }).tokens.length;
    },
    async metrics(signal) {
      return (await request('metrics', { signal })).text();
    },
  };
}

function codeOf(status: number): ErrorCode {
  if (status === 401) return 'unauthorized';
  return status === 400 || status === 422 ? 'rejected' : 'failed';
}

async function messageOf(response: Response): Promise<string> {
  const text = await response.text();
  try {
    const { error } = JSON.parse(text) as Chunk;
    if (error !== undefined) return error.message;
  } catch {
    // a proxy answers with a page
  }
  return `the server answered ${response.status} ${response.statusText}`;
}

function wireTool(tool: Tool): object {
  return { type: 'function', function: tool };
}

function userMessage({ role, content, images }: Extract<PromptMessage, { role: 'user' }>): object {
  if (images === undefined) return { role, content };
  const parts = images.map((url) => ({ type: 'image_url', image_url: { url } }));
  return { role, content: [...parts, { type: 'text', text: content }] };
}

function wireMessage(message: PromptMessage): object {
  switch (message.role) {
    case 'system':
      return message;
    case 'user':
      return userMessage(message);
    case 'assistant': {
      const { role, content, reasoning, toolCalls } = message;
      const calls = toolCalls?.map(({ id, ...named }) => ({ id, type: 'function', function: named }));
      return { role, content, reasoning_content: reasoning, tool_calls: calls };
    }
    case 'tool': {
      const { role, content, name, toolCallId } = message;
      return { role, content, name, tool_call_id: toolCallId };
    }
  }
}

/** Fields that are undefined are absent in JSON. */
function bodyOf({ model, messages, tools, requiresCall, sampling, jsonSchema, numAlternatives }: ChatCall): object {
  return {
    model,
    messages: messages.map(wireMessage),
    tools: tools?.map(wireTool),
    tool_choice: requiresCall === true ? 'required' : undefined,
    temperature: sampling.temperature,
    top_p: sampling.topP,
    top_k: sampling.topK,
    min_p: sampling.minP,
    repetition_penalty: sampling.repetitionPenalty,
    seed: sampling.seed,
    max_completion_tokens: sampling.maxTokens,
    response_format: jsonSchema && { type: 'json_schema', json_schema: { name: 'answer', schema: jsonSchema } },
    logprobs: numAlternatives === undefined ? undefined : true,
    top_logprobs: numAlternatives,
    stream: true,
    stream_options: { include_usage: true },
  };
}

async function* eventsOf({ body }: Response): AsyncGenerator<ChatEvent, void, void> {
  if (body === null) throw new ChatError('failed', 'the server answered without a body');
  const events = body.pipeThrough(new TextDecoderStream()).pipeThrough(new EventSourceParserStream());
  const reader = events.getReader();
  const calls: ToolCall[] = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) throw new ChatError('failed', 'the connection ended before the answer did');
      if (value.data === '[DONE]') return;
      yield* partsOf(JSON.parse(value.data) as Chunk, calls);
    }
  } finally {
    // ends the request when the caller stops early
    await reader.cancel().catch(() => {});
  }
}

/** @param calls those of the answer so far */
function* partsOf({ error, choices = [], usage }: Chunk, calls: ToolCall[]): Generator<ChatEvent, void, void> {
  if (error !== undefined) throw new ChatError('failed', error.message);
  for (const { delta, logprobs, finish_reason: reason } of choices) {
    if (delta.reasoning_content) yield { type: 'reasoning', text: delta.reasoning_content };
    for (const part of delta.tool_calls ?? []) yield* addCall(calls, part);
    if (delta.content) yield { type: 'text', text: delta.content };
    if (logprobs && logprobs.content.length > 0) yield { type: 'tokens', tokens: logprobs.content.map(tokenOf) };
    if (reason === 'tool_calls') yield { type: 'calls', calls };
    if (reason !== null) yield { type: 'end', reason };
  }
  if (!usage) return;
  yield {
    type: 'usage',
    usage: {
      promptTokens: usage.prompt_tokens,
      cachedTokens: usage.prompt_tokens_details.cached_tokens,
      answerTokens: usage.completion_tokens,
    },
  };
}

function* addCall(calls: ToolCall[], { index, id, function: part }: CallDelta): Generator<ChatEvent, void, void> {
  const { id: known = id ?? '', name = part.name ?? '', arguments: text = '' } = calls[index] ?? {};
  if (calls[index] === undefined) yield { type: 'call-start', name };
  calls[index] = { id: known, name, arguments: text + (part.arguments ?? '') };
}

function tokenOf({ token, logprob, top_logprobs: alternatives }: LogprobEntry): AnswerToken {
  return {
    text: token,
    logprob,
    alternatives: alternatives.map(({ token: text, logprob: value }) => ({ text, logprob: value })),
  };
}
