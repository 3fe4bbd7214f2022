/** Converts generations to the response to a completion request: complete, or as stream chunks. */
import { definedFields } from '@winnow/tensor';
import { checkTextLength } from '@winnow/engine';
import type { GeneratedToken, GenerateOptions, GenerationResult } from '@winnow/engine';
import { ApiError } from '../http/api-error.js';
import { engineApiError } from '../http/error-mapping.js';
import { doneEvent, eventOf } from '../http/event-stream.js';
import { checkPrompt, type GenerationJob } from './generation-job.js';
import { AnswerTokens, CompletionLogprobWriter } from './logprobs.js';
import type { GenerativeEntry } from '../models/model-registry.js';
import type { GenerativeModel } from '../options.js';
import { samplingOptionsOf } from './sampling.js';
import type { Completion, CompletionChoice, CompletionRequest } from '../schemas/completions.js';
import { usageOf } from './usage.js';

const defaultMaxTokens = 16;

export interface PreparedCompletion {
  readonly prompts: readonly Int32Array[];
  readonly options: GenerateOptions;
  readonly wantsLogprobs: boolean;
}

/** @throws {ApiError} 400 for prompts that the model cannot process */
export async function prepareCompletion(
  body: CompletionRequest,
  entry: GenerativeEntry,
  signal: AbortSignal,
): Promise<PreparedCompletion> {
  const { prompt, logprobs } = body;
  const inputs = typeof prompt === 'string' || typeof prompt[0] === 'number' ? [prompt] : prompt;
  const prompts: Int32Array[] = [];
  for (const [index, input] of inputs.entries()) {
    const param = inputs.length === 1 ? 'prompt' : `prompt[${index}]`;
    const tokens = await tokenize(input as string | number[], entry, param, signal);
    checkPrompt(tokens, entry, param);
    prompts.push(tokens);
  }
  return {
    prompts,
    wantsLogprobs: logprobs !== undefined,
    options: {
      ...samplingOptionsOf(body),
      maxTokens: body.max_tokens ?? defaultMaxTokens,
      ...definedFields<GenerateOptions>({ numTopLogprobs: logprobs, grammar: body.grammar }),
    },
  };
}

async function tokenize(
  input: string | number[],
  { model }: GenerativeEntry,
  param: string,
  signal: AbortSignal,
): Promise<Int32Array> {
  try {
    if (typeof input === 'string') checkTextLength(input, model.tokenizer, model.contextSize);
    return await model.tokenize(input, { signal });
  } catch (error) {
    const known = engineApiError(error, param);
    if (known === undefined) throw error;
    throw new ApiError({ status: 400, message: known.message, param, code: known.code }, { cause: error });
  }
}

const headOf = ({
  requestId,
  created,
  model,
}: GenerationJob): Pick<Completion, 'id' | 'object' | 'created' | 'model'> => ({
  id: `cmpl-${requestId}`,
  object: 'text_completion',
  created,
  model,
});

function finishReasonOf({ finishReason }: GenerationResult): CompletionChoice['finish_reason'] {
  return finishReason === 'length' || finishReason === 'context' ? 'length' : 'stop';
}

/** Text of a prompt's answer and the tokens that now belong to it; at the end, the result. */
interface Step {
  readonly index: number;
  readonly text: string;
  /** Empty if no logprobs are wanted. */
  readonly tokens: readonly GeneratedToken[];
  readonly result?: GenerationResult;
}

async function* stepsOf(
  job: GenerationJob,
  { prompts, options, wantsLogprobs }: PreparedCompletion,
  { tokenizer }: GenerativeModel,
): AsyncGenerator<Step, void, void> {
  for (const [index, prompt] of prompts.entries()) {
    const answer = wantsLogprobs ? new AnswerTokens(tokenizer, prompt) : undefined;
    const tokens = job.run(prompt, options);
    try {
      for (;;) {
        const { done, value } = await tokens.next();
        if (done !== true) {
          yield { index, text: value.text, tokens: answer?.push(value) ?? [] };
          continue;
        }
        yield { index, text: '', tokens: answer?.end(value.finishReason) ?? [], result: value };
        break;
      }
    } finally {
      await tokens.return(undefined as never);
    }
  }
}

export async function completion(
  job: GenerationJob,
  prepared: PreparedCompletion,
  model: GenerativeModel,
): Promise<Completion> {
  const choices: CompletionChoice[] = [];
  const results: GenerationResult[] = [];
  let answer: GeneratedToken[] = [];
  for await (const { index, tokens, result } of stepsOf(job, prepared, model)) {
    answer.push(...tokens);
    if (result === undefined) continue;
    const logprobs = prepared.wantsLogprobs ? new CompletionLogprobWriter(model.tokenizer).write(answer) : null;
    choices.push({ index, text: result.text, logprobs, finish_reason: finishReasonOf(result) });
    results.push(result);
    answer = [];
  }
  return { ...headOf(job), choices, usage: usageOf(results) };
}

/** The chunks as events; ends the job. */
export async function* completionEvents(
  job: GenerationJob,
  prepared: PreparedCompletion,
  model: GenerativeModel,
  includeUsage: boolean,
): AsyncGenerator<string, void, void> {
  const head = headOf(job);
  const usage = includeUsage ? { usage: null } : {};
  const event = (choice: CompletionChoice): string =>
    eventOf({ ...head, choices: [choice], ...usage } satisfies Completion);
  const results: GenerationResult[] = [];
  let writer = new CompletionLogprobWriter(model.tokenizer);
  try {
    for await (const { index, text, tokens, result } of stepsOf(job, prepared, model)) {
      if (text !== '' || tokens.length > 0) {
        const logprobs = prepared.wantsLogprobs ? writer.write(tokens) : null;
        yield event({ index, text, logprobs, finish_reason: null });
      }
      if (result === undefined) continue;
      yield event({ index, text: '', logprobs: null, finish_reason: finishReasonOf(result) });
      results.push(result);
      writer = new CompletionLogprobWriter(model.tokenizer);
    }
    if (includeUsage) yield eventOf({ ...head, choices: [], usage: usageOf(results) } satisfies Completion);
    yield doneEvent;
  } finally {
    job.end();
  }
}
