/** Wraps a model of the engine as a language model of the AI SDK. */
import type {
  LanguageModelV4,
  LanguageModelV4CallOptions,
  LanguageModelV4Content,
  LanguageModelV4FinishReason,
  LanguageModelV4GenerateResult,
  LanguageModelV4StreamPart,
  LanguageModelV4StreamResult,
  LanguageModelV4Usage,
} from '@ai-sdk/provider';
import type {
  ChatPart,
  GenerationResult,
  Model,
  ReasoningPart,
  TextPart,
  ToolCallDelta,
  ToolCallPart,
  ToolCallStart,
} from '@winnow/engine';
import { prepareCall, type Call } from './call.js';
import { languageModelNames, type LanguageModelSettings } from './settings.js';
import { checkOptions } from '@winnow/tensor';

/**
 * The caller loads the model, owns it and disposes of it. Concurrent calls share its steps and cache, up to its
 * `maxSessions`. Constrained decoding enforces tools and response formats.
 * @throws {UnknownOptionError} for a setting that does not exist
 */
export function languageModel(model: Model, settings: LanguageModelSettings = {}): LanguageModelV4 {
  checkOptions(settings, languageModelNames);
  const modelId = settings.modelId ?? model.name;

  return {
    specificationVersion: 'v4',
    provider: 'winnow',
    modelId,
    supportedUrls: {},

    async doGenerate(options: LanguageModelV4CallOptions): Promise<LanguageModelV4GenerateResult> {
      const call = await prepareCall(model, settings, options);
      const generation = model.generate(call.prompt, call.options);
      const parts: ChatPart[] = [];
      const counter = new ReasoningCounter();
      for await (const { text } of generation) parts.push(...counter.count(call.reader.push(text)));
      parts.push(...call.reader.end());
      const result = await generation.result();
      const content = contentOf(parts);
      return {
        content,
        finishReason: finishReasonOf(result, parts.findLast(isCall)?.isComplete === true),
        usage: usageOf(result, counter.numTokens),
        warnings: call.warnings,
        request: { body: requestBody(call) },
        response: { modelId },
      };
    },

    async doStream(options: LanguageModelV4CallOptions): Promise<LanguageModelV4StreamResult> {
      const call = await prepareCall(model, settings, options);
      const parts = streamParts(model, call, modelId, options.abortSignal);
      const stream = new ReadableStream<LanguageModelV4StreamPart>({
        async pull(controller): Promise<void> {
          const { done, value } = await parts.next();
          if (done === true) controller.close();
          else controller.enqueue(value);
        },
        async cancel(): Promise<void> {
          await parts.return(undefined);
        },
      });
      return { stream, request: { body: requestBody(call) } };
    },
  };
}

/** Throws only when aborted; other failures become error parts. */
async function* streamParts(
  model: Model,
  call: Call,
  modelId: string,
  signal: AbortSignal | undefined,
): AsyncGenerator<LanguageModelV4StreamPart, void, void> {
  yield { type: 'stream-start', warnings: call.warnings };
  yield { type: 'response-metadata', modelId };
  const writer = new PartWriter();
  const counter = new ReasoningCounter();
  try {
    const generation = model.generate(call.prompt, call.options);
    for await (const { text } of generation) yield* writer.write(counter.count(call.reader.push(text)));
    yield* writer.write(call.reader.end());
    yield* writer.endText();
    const result = await generation.result();
    const usage = usageOf(result, counter.numTokens);
    yield { type: 'finish', finishReason: finishReasonOf(result, writer.endsWithCall), usage };
  } catch (error) {
    if (signal?.aborted === true) throw error;
    yield { type: 'error', error };
    yield { type: 'finish', finishReason: { unified: 'error', raw: undefined }, usage: unknownUsage };
  }
}

/** Counts the tokens of reasoning, including its opening mark. */
class ReasoningCounter {
  #numTokens = 0;
  /** Number of tokens that have not produced a part yet: they count for the next one. */
  #numPending = 0;

  get numTokens(): number {
    return this.#numTokens;
  }

  /** Counts one more token, which completed these parts. */
  count(parts: readonly ChatPart[]): readonly ChatPart[] {
    this.#numPending += 1;
    if (parts.length === 0) return parts;
    if (parts[0]?.type === 'reasoning') this.#numTokens += this.#numPending;
    this.#numPending = 0;
    return parts;
  }
}

/** Converts the parts of an answer to parts of the SDK's stream, in which texts and blocks of reasoning have a start and an end. */
class PartWriter {
  #open: { readonly type: 'text' | 'reasoning'; readonly id: string } | undefined;
  #numTexts = 0;
  #endsWithCall = false;

  /** Whether the last call is complete. */
  get endsWithCall(): boolean {
    return this.#endsWithCall;
  }

  *write(parts: readonly ChatPart[]): Generator<LanguageModelV4StreamPart> {
    for (const part of parts) {
      if (part.type === 'text' || part.type === 'reasoning') yield* this.#writeText(part);
      else yield* this.#writeCall(part);
    }
  }

  *endText(): Generator<LanguageModelV4StreamPart> {
    if (this.#open !== undefined) yield { type: `${this.#open.type}-end`, id: this.#open.id };
    this.#open = undefined;
  }

  *#writeText({ type, text }: TextPart | ReasoningPart): Generator<LanguageModelV4StreamPart> {
    if (this.#open?.type !== type) {
      yield* this.endText();
      this.#open = { type, id: `${type}-${this.#numTexts++}` };
      yield { type: `${type}-start`, id: this.#open.id };
    }
    yield { type: `${type}-delta`, id: this.#open.id, delta: text };
  }

  *#writeCall(part: ToolCallStart | ToolCallDelta | ToolCallPart): Generator<LanguageModelV4StreamPart> {
    const { id } = part;
    if (part.type === 'tool-call-start') {
      yield* this.endText();
      yield { type: 'tool-input-start', id, toolName: part.name };
    } else if (part.type === 'tool-call-delta') {
      yield { type: 'tool-input-delta', id, delta: part.arguments };
    } else {
      yield { type: 'tool-input-end', id };
      this.#endsWithCall = part.isComplete;
      yield { type: 'tool-call', toolCallId: id, toolName: part.name, input: part.arguments };
    }
  }
}

function contentOf(parts: readonly ChatPart[]): LanguageModelV4Content[] {
  const content: LanguageModelV4Content[] = [];
  for (const part of parts) {
    const last = content.at(-1);
    if (isCall(part)) {
      content.push({ type: 'tool-call', toolCallId: part.id, toolName: part.name, input: part.arguments });
    } else if (part.type === 'text' || part.type === 'reasoning') {
      if (last?.type === part.type) last.text += part.text;
      else content.push({ type: part.type, text: part.text });
    }
  }
  return content;
}

function isCall(part: ChatPart): part is ToolCallPart {
  return part.type === 'tool-call';
}

function finishReasonOf({ finishReason: raw }: GenerationResult, endsWithCall: boolean): LanguageModelV4FinishReason {
  if (endsWithCall) return { unified: 'tool-calls', raw };
  return { unified: raw === 'length' || raw === 'context' ? 'length' : 'stop', raw };
}

function usageOf({ promptTokens, cachedTokens, tokens }: GenerationResult, numReasoning: number): LanguageModelV4Usage {
  return {
    inputTokens: {
      total: promptTokens,
      noCache: promptTokens - cachedTokens,
      cacheRead: cachedTokens,
      cacheWrite: undefined,
    },
    outputTokens: { total: tokens.length, text: tokens.length - numReasoning, reasoning: numReasoning },
  };
}

const unknownUsage: LanguageModelV4Usage = {
  inputTokens: { total: undefined, noCache: undefined, cacheRead: undefined, cacheWrite: undefined },
  outputTokens: { total: undefined, text: undefined, reasoning: undefined },
};

/** The input of the model, for request inspection. */
function requestBody({ prompt }: Call): unknown {
  return { prompt: typeof prompt === 'string' ? prompt : Array.from(prompt as ArrayLike<number>) };
}
