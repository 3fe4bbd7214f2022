/** The generation loop: prompt in chunks, then one token per step. */
import { ArgumentError } from '@winnow/tensor';
import { fitPrompt } from './prompt-fit.js';
import { createSampler, type Choice } from './sampler.js';
import { resolveSampling } from './sampling-options.js';
import { sharedPrefix, type Sequence } from './sequence.js';
import type { ReadOutput } from './step-runner.js';
import { createTextStream } from './text-stream.js';
import type { LoadedModel } from './loaded-model.js';
import type { FinishReason, GeneratedToken, GenerateOptions, GenerationResult, TokenLogprob } from './types.js';

/** Yields the tokens and returns the result. Aborting leaves the sequence with the tokens that were stored. */
export async function* generateTokens(
  model: LoadedModel,
  sequence: Sequence,
  prompt: Int32Array,
  options: GenerateOptions,
): AsyncGenerator<GeneratedToken, GenerationResult, void> {
  const { config, tokenizer, runner, host, numTop } = model;
  const { signal } = options;
  const maxTokens = checkCount('maxTokens', options.maxTokens ?? Infinity, Infinity);
  const numTopLogprobs = checkCount('numTopLogprobs', options.numTopLogprobs ?? 0, numTop);
  const sampler = createSampler(
    resolveSampling(options, model.defaultSampling, host.randomSeed),
    config.vocabSize,
    numTop,
  );
  const { tokens, numDropped } = fitPrompt(prompt, model.contextSize, options.overflow ?? 'error');
  const text = createTextStream(tokenizer, tokens, options.stop ?? []);
  // the last token is always computed, because its logits are needed
  const numCached = Math.min(sharedPrefix(sequence.tokens, tokens), tokens.length - 1);
  sequence.truncate(numCached);
  for (const tokenId of tokens) sampler.accept(tokenId);

  const top = createTopReader(numTopLogprobs);
  let choice: Choice = { tokenId: 0, logprob: 0 };
  let topLogprobs: readonly TokenLogprob[] = [];
  const readChoice = async (read: ReadOutput): Promise<void> => {
    choice = await sampler.choose(read);
    topLogprobs = await top(read);
  };

  const startMs = host.now();
  const wantsToken = maxTokens > 0;
  await processPrompt(model, sequence, tokens, options, wantsToken ? readChoice : undefined);
  const promptMs = host.now() - startMs;

  const generated: number[] = [];
  const pieces: string[] = [];
  const next = new Int32Array(1);
  let numSteps = 0;
  let pausedMs = 0; // while the caller had the token
  let finishReason: FinishReason | undefined = wantsToken ? undefined : 'length';
  while (finishReason === undefined) {
    const { tokenId, logprob } = choice;
    const isEnd = options.ignoreEos !== true && model.eosIds.has(tokenId);
    let piece = '';
    if (isEnd) finishReason = 'eos';
    else {
      generated.push(tokenId);
      piece = text.push(tokenId);
      if (text.isStopped) finishReason = 'stop';
      else if (generated.length >= maxTokens) finishReason = 'length';
      else if (tokens.length + generated.length >= model.contextSize) finishReason = 'context';
    }
    if (finishReason !== undefined) piece += text.flush();
    pieces.push(piece);
    if (!isEnd || piece !== '') {
      const handedOverMs = host.now();
      yield { tokenId, text: piece, logprob, topLogprobs };
      pausedMs += host.now() - handedOverMs;
    }
    if (finishReason !== undefined) break;
    signal?.throwIfAborted();
    const begin = sequence.tokens.length;
    sequence.reserve(begin + 1);
    next[0] = tokenId;
    await runner.run(
      { cache: sequence, tokens: next, offset: 0, begin, count: 1, outputRows: firstRow, signal },
      readChoice,
    );
    sequence.commit(next, 0, 1);
    numSteps++;
  }
  const generateMs = host.now() - startMs - promptMs - pausedMs;
  return {
    text: pieces.join(''),
    tokens: generated,
    promptTokens: tokens.length,
    cachedTokens: numCached,
    droppedTokens: numDropped,
    finishReason,
    timings: {
      promptMs,
      generateMs,
      promptTokensPerSecond: perSecond(tokens.length - numCached, promptMs),
      tokensPerSecond: perSecond(numSteps, generateMs),
    },
  };
}

const firstRow: readonly number[] = [0];

/** Computes the part of the prompt that is not cached, in chunks; `read` sees the outputs of the last token. */
async function processPrompt(
  { runner }: LoadedModel,
  sequence: Sequence,
  tokens: Int32Array,
  { signal, onPromptProgress }: GenerateOptions,
  read: ((output: ReadOutput) => Promise<void>) | undefined,
): Promise<void> {
  onPromptProgress?.({ processedTokens: sequence.tokens.length, totalTokens: tokens.length });
  for (let begin = sequence.tokens.length; begin < tokens.length;) {
    signal?.throwIfAborted();
    const count = Math.min(runner.maxTokens, tokens.length - begin);
    const isLast = begin + count === tokens.length;
    sequence.reserve(begin + count);
    const outputRows = isLast && read !== undefined ? [count - 1] : [];
    await runner.run(
      { cache: sequence, tokens, offset: begin, begin, count, outputRows, signal },
      outputRows.length > 0 ? read : undefined,
    );
    sequence.commit(tokens, begin, count);
    begin += count;
    onPromptProgress?.({ processedTokens: begin, totalTokens: tokens.length });
  }
}

/** Reads the best tokens of the step with their log-probabilities. */
function createTopReader(count: number): (read: ReadOutput) => Promise<readonly TokenLogprob[]> {
  const none: readonly TokenLogprob[] = [];
  if (count === 0) return () => Promise.resolve(none);
  const ids = new Int32Array(count);
  const logits = new Float32Array(count);
  const logSumExp = new Float32Array(1);
  return async (read) => {
    await read('topIndices', ids);
    await read('topValues', logits);
    await read('logSumExp', logSumExp);
    return Array.from(ids, (tokenId, rank) => ({
      tokenId,
      logprob: (logits[rank] as number) - (logSumExp[0] as number),
    }));
  };
}

function checkCount(argument: string, value: number, max: number): number {
  if ((Number.isSafeInteger(value) || value === Infinity) && value >= 0 && value <= max) return value;
  const expected = max === Infinity ? 'an integer from 0' : `an integer from 0 to ${max}`;
  throw new ArgumentError({ argument, expected, actual: String(value) });
}

function perSecond(count: number, ms: number): number {
  return ms > 0 ? (count * 1000) / ms : 0;
}
