/** Converts generations to the response to a completion request: complete, or as stream chunks. */
import { definedFields } from '@winnow/tensor';
import { checkTextLength } from '@winnow/engine';
import type { GenerateOptions, GenerationResult } from '@winnow/engine';
import { ApiError, badRequest } from '../http/api-error.js';
import { engineApiError } from '../http/error-mapping.js';
import { doneEvent, eventOf } from '../http/event-stream.js';
import { isCutOff } from './answer-steps.js';
import { checkPrompt, type GenerationJob } from './generation-job.js';
import { AnswerTokens, CompletionLogprobWriter, type ScoredToken } from './logprobs.js';
import { checkScores, echoOf, type EchoedPrompt } from './prompt-scores.js';
import type { GenerativeEntry } from '../models/model-entry.js';
import type { GenerativeModel } from '../options.js';
import { optionsOfChoice, samplingOptionsOf } from './sampling.js';
import type { Completion, CompletionChoice, CompletionRequest } from '../schemas/completions.js';
import { usageOf } from './usage.js';

const defaultMaxTokens = 16;

export interface PreparedCompletion {
  readonly prompts: readonly CompletionPrompt[];
  readonly options: GenerateOptions;
  /** Answers per prompt. */
  readonly numChoices: number;
  readonly echo: boolean;
  /** Number of most probable tokens to report; undefined: no logprobs. */
  readonly numTop: number | undefined;
}

interface CompletionPrompt {
  readonly tokens: Int32Array;
  /** Undefined when the request gave token ids. */
  readonly text: string | undefined;
}

/** @throws {ApiError} 400 for prompts that the model cannot process */
export async function prepareCompletion(
  body: CompletionRequest,
  entry: GenerativeEntry,
  signal: AbortSignal,
): Promise<PreparedCompletion> {
  const { prompt, logprobs, echo = false, max_tokens: maxTokens = defaultMaxTokens } = body;
  if (maxTokens === 0 && !echo) throw badRequest('max_tokens', '0 needs echo: true', 'invalid_value');
  if (echo && logprobs !== undefined) checkScores(entry.model, entry.id);
  const inputs = typeof prompt === 'string' || typeof prompt[0] === 'number' ? [prompt] : prompt;
  const prompts: CompletionPrompt[] = [];
  for (const [index, input] of inputs.entries()) {
    const param = inputs.length === 1 ? 'prompt' : `prompt[${index}]`;
    const tokens = await tokenizePrompt(input as string | number[], entry, param, signal);
    checkPrompt(maxTokens === 0 ? tokens.subarray(1) : tokens, entry, param);
    prompts.push({ tokens, text: typeof input === 'string' ? input : undefined });
  }
  return {
    prompts,
    numChoices: body.n ?? 1,
    echo,
    numTop: logprobs,
    options: {
      ...samplingOptionsOf(body),
      maxTokens,
      // clients that score prompts expect one token after them, also where the answer would end
      ...definedFields<GenerateOptions>({
        ignoreEos: echo && logprobs !== undefined && maxTokens === 1 ? true : undefined,
        numTopLogprobs: logprobs,
        grammar: body.grammar,
      }),
    },
  };
}

/** @throws {ApiError} 400 for a text that is too long for sure, and ids that do not exist */
export async function tokenizePrompt(
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
  return isCutOff(finishReason) ? 'length' : 'stop';
}

/** Text of a choice and the tokens that now belong to it; at its end, the result. */
interface Step {
  readonly index: number;
  readonly text: string;
  /** Empty if no logprobs are wanted. */
  readonly tokens: readonly ScoredToken[];
  readonly result?: GenerationResult;
}

/** The choices of each prompt in turn. */
async function* stepsOf(
  job: GenerationJob,
  prepared: PreparedCompletion,
  model: GenerativeModel,
): AsyncGenerator<Step, void, void> {
  const { prompts, options, numChoices, echo, numTop } = prepared;
  for (const [index, { tokens, text }] of prompts.entries()) {
    const echoed = echo ? await echoOf(job, tokens, text, model, numTop) : undefined;
    for (let choice = 0; choice < numChoices; choice++) {
      const choiceOptions = optionsOfChoice(options, choice);
      yield* stepsOfChoice(job, tokens, choiceOptions, { index: index * numChoices + choice, echoed, prepared, model });
    }
  }
}

interface Choice {
  readonly index: number;
  readonly echoed: EchoedPrompt | undefined;
  readonly prepared: PreparedCompletion;
  readonly model: GenerativeModel;
}

async function* stepsOfChoice(
  job: GenerationJob,
  prompt: Int32Array,
  options: GenerateOptions,
  { index, echoed, prepared, model }: Choice,
): AsyncGenerator<Step, void, void> {
  if (echoed !== undefined) yield { index, ...echoed };
  const answer = prepared.numTop === undefined ? undefined : new AnswerTokens(model.tokenizer, prompt);
  const tokens = job.run(prompt, options);
  try {
    for (;;) {
      const { done, value } = await tokens.next();
      if (done !== true) {
        yield { index, text: value.text, tokens: answer?.push(value) ?? [] };
        continue;
      }
      yield { index, text: '', tokens: answer?.end(value.finishReason) ?? [], result: value };
      return;
    }
  } finally {
    await tokens.return(undefined as never);
  }
}

export async function completion(
  job: GenerationJob,
  prepared: PreparedCompletion,
  model: GenerativeModel,
): Promise<Completion> {
  const choices: CompletionChoice[] = [];
  const results: GenerationResult[] = [];
  let answer: ScoredToken[] = [];
  let said: string[] = [];
  for await (const { index, text, tokens, result } of stepsOf(job, prepared, model)) {
    answer.push(...tokens);
    said.push(text);
    if (result === undefined) continue;
    const logprobs = prepared.numTop === undefined ? null : new CompletionLogprobWriter(model.tokenizer).write(answer);
    choices.push({ index, text: said.join(''), logprobs, finish_reason: finishReasonOf(result) });
    results.push(result);
    [answer, said] = [[], []];
  }
  return { ...headOf(job), choices, usage: usageOf(results, prepared.numChoices) };
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
        const logprobs = prepared.numTop === undefined ? null : writer.write(tokens);
        yield event({ index, text, logprobs, finish_reason: null });
      }
      if (result === undefined) continue;
      yield event({ index, text: '', logprobs: null, finish_reason: finishReasonOf(result) });
      results.push(result);
      writer = new CompletionLogprobWriter(model.tokenizer);
    }
    if (includeUsage) {
      const total = usageOf(results, prepared.numChoices);
      yield eventOf({ ...head, choices: [], usage: total } satisfies Completion);
    }
    yield doneEvent;
  } finally {
    job.end();
  }
}
