/** What the page requires of the place where a model runs. Both homes implement it; the views know nothing else. */

export interface ModelChoice {
  readonly id: string;
  /** Maximum number of tokens of a conversation; undefined for a model that its first request loads. */
  readonly contextSize: number | undefined;
  /** Whether the model has a chat template; true until the model is loaded. */
  readonly canChat: boolean;
  /** Whether prompts may contain images; undefined until the model is loaded. */
  readonly takesImages: boolean | undefined;
  /** What the user should know, such as why it runs on one thread. */
  readonly notices: readonly string[];
}

/** A complete call of a tool. */
export interface ToolCall {
  readonly id: string;
  readonly name: string;
  /** JSON text of an object. */
  readonly arguments: string;
}

export interface Tool {
  readonly name: string;
  readonly description?: string;
  /** JSON schema of the arguments, an object. */
  readonly parameters: Readonly<Record<string, unknown>>;
}

export type PromptMessage =
  | { readonly role: 'system'; readonly content: string }
  | {
      readonly role: 'user';
      readonly content: string;
      /** `data:` URLs of images, which stand before the text. */
      readonly images?: readonly string[];
    }
  | {
      readonly role: 'assistant';
      readonly content: string;
      /** The template decides what the model sees of it. */
      readonly reasoning?: string;
      readonly toolCalls?: readonly ToolCall[];
    }
  /** The result of a call. */
  | { readonly role: 'tool'; readonly content: string; readonly toolCallId: string; readonly name: string };

/** Absent: what the model recommends. */
export interface Sampling {
  readonly temperature?: number;
  readonly topP?: number;
  readonly topK?: number;
  readonly minP?: number;
  readonly repetitionPenalty?: number;
  readonly seed?: number;
  readonly maxTokens?: number;
}

export interface ChatCall {
  readonly model: string;
  readonly messages: readonly PromptMessage[];
  readonly sampling: Sampling;
  /** Tools that the model may call. */
  readonly tools?: readonly Tool[];
  /** Whether the answer has to call one of them. Default: the model decides. */
  readonly requiresCall?: boolean;
  /** A JSON schema that the answer follows. */
  readonly jsonSchema?: Readonly<Record<string, unknown>>;
  /** Alternatives to report per token; absent: no log-probabilities. */
  readonly numAlternatives?: number;
}

export interface Alternative {
  readonly text: string;
  readonly logprob: number;
}

export interface AnswerToken extends Alternative {
  readonly alternatives: readonly Alternative[];
}

/** `tool_calls`: the answer ends with complete calls. */
export type FinishReason = 'stop' | 'length' | 'tool_calls';

export interface ChatUsage {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly answerTokens: number;
}

export type ChatEvent =
  | { readonly type: 'text' | 'reasoning'; readonly text: string }
  | { readonly type: 'tokens'; readonly tokens: readonly AnswerToken[] }
  /** A call begins; what the model writes of it follows with the end. */
  | { readonly type: 'call-start'; readonly name: string }
  /** All calls of an answer that ends with `tool_calls`. */
  | { readonly type: 'calls'; readonly calls: readonly ToolCall[] }
  | { readonly type: 'usage'; readonly usage: ChatUsage }
  | { readonly type: 'end'; readonly reason: FinishReason };

/** What a static page loads a model from. */
export type ModelSource =
  | { readonly kind: 'demo' }
  | { readonly kind: 'files'; readonly files: readonly File[] }
  /** `owner/name`, or `owner/name:q4_k_m` for one of its GGUF files. */
  | { readonly kind: 'hub'; readonly address: string; readonly endpoint: string };

export interface LoadProgress {
  readonly what: 'download' | 'load';
  readonly loadedBytes: number;
  readonly totalBytes: number;
}

export interface CachedModel {
  readonly name: string;
  /** Whether it needs no network; the download of others has not finished. */
  readonly isComplete: boolean;
  readonly sizeBytes: number;
}

/** The part of a home that brings its own models. */
export interface ModelLoader {
  load(
    source: ModelSource,
    options: LoadSettings,
    onProgress: (progress: LoadProgress) => void,
    signal: AbortSignal,
  ): Promise<ModelChoice>;
  /** Models that were downloaded, also in part. */
  cached(): Promise<readonly CachedModel[]>;
  remove(name: string): Promise<void>;
}

export interface LoadSettings {
  /** Maximum number of tokens of a conversation. Default: what the model was trained for. */
  readonly context?: number;
  /** An attention policy such as `sparq`. Default: dense. */
  readonly attention?: string;
  /** Whether models that are loaded stay, for comparisons. Default: false. */
  readonly keepsOthers?: boolean;
}

export interface ChatBackend {
  /** @throws {ChatError} `unauthorized` when the server wants an API key */
  models(): Promise<readonly ModelChoice[]>;
  /** @throws {ChatError} @throws the reason of `signal` when it aborts */
  chat(call: ChatCall, signal: AbortSignal): AsyncIterable<ChatEvent>;
  /** Why a model cannot be offered a tool, such as a schema that cannot be enforced; undefined if it can. */
  toolFault(model: string, tool: Tool, signal: AbortSignal): Promise<string | undefined>;
  /** The number of tokens of a text, without special ones. @throws {ChatError} */
  countTokens(model: string, text: string): Promise<number>;
  /** All metrics in the text format of Prometheus. */
  metrics(signal: AbortSignal): Promise<string>;
  /** Absent where the models are given. */
  readonly loader?: ModelLoader;
}

export type ErrorCode = 'unauthorized' | 'rejected' | 'failed';

export class ChatError extends Error {
  /** `rejected`: the request itself is wrong. */
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string) {
    super(message);
    this.name = 'ChatError';
    this.code = code;
  }
}

/** What a failure is shown as. */
export function errorText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
