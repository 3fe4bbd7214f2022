/** The generation loop: prefill of the prompt in chunks, then one token per decode step. */
import { CapacityError, type RngState } from '@winnow/tensor';
import type { StepRequest } from '../runtime/batch.js';
import { isImageId } from '../images/image-rows.js';
import type { Sequence } from '../runtime/sequence.js';
import type { Constraint } from './constraint.js';
import type {
  FinishReason,
  GeneratedToken,
  GenerateOptions,
  GenerationResult,
  GenerationTimings,
} from './generation.js';
import type { LoadedModel } from './loaded-model.js';
import { chunkLimit, dropsTokens, makeRoom } from './overflow.js';
import { Sampler } from './sampler.js';
import { createSpeculation } from './speculation/create.js';
import type { Speculation } from './speculation/speculation.js';
import type { CheckedStart, Limits } from './start.js';
import { lastingOptions, type GenerationState } from './state.js';
import type { TextStream } from './text-stream.js';
import { Verifier, type AcceptedToken, type Pick } from './verifier.js';

export class GenerationRun {
  readonly #model: LoadedModel;
  readonly #sequence: Sequence;
  readonly #options: GenerateOptions;
  readonly #limits: Limits;
  /** The prompt as used, including tokens of a resumed generation. */
  readonly #prompt: Int32Array;
  readonly #numDropped: number;
  /** Number of prompt tokens that were generated before; they are computed in the decode phase. */
  readonly #numResumed: number;
  readonly #constraint: Constraint | undefined;
  readonly #sampler: Sampler;
  readonly #text: TextStream;
  readonly #state: GenerationState;
  readonly #verifier: Verifier;
  readonly #speculation: Speculation | undefined;
  readonly #generated: number[] = [];
  readonly #pieces: string[] = [];
  /** The request of every decode step of one token, reused with another token. */
  readonly #oneToken: StepRequest;
  /** The state of the random numbers after the last token that was handed over, if later ones are chosen. */
  #rngState: RngState | undefined;
  readonly #accepted: AcceptedToken = { text: '', isShown: true, ending: undefined };
  #numEvicted = 0;
  /** Tokens that decode steps generated. */
  #numDecoded = 0;

  /** @throws {ArgumentError} for a bias of a token that does not exist */
  constructor(
    model: LoadedModel,
    sequence: Sequence,
    { options, limits, sampling, fitted, text, numResumed, constrained, rngState }: CheckedStart,
    constraint: Constraint | undefined,
  ) {
    this.#model = model;
    this.#sequence = sequence;
    this.#options = options;
    this.#limits = limits;
    this.#constraint = constraint;
    const isMasked = this.#constraint !== undefined;
    this.#sampler = new Sampler(sampling, model.config.vocabSize, model.numTop, isMasked, options.logitBias);
    const { tokens, numDropped } = fitted;
    this.#prompt = tokens;
    this.#numDropped = numDropped;
    this.#numResumed = numResumed;
    this.#text = text;
    this.#speculation = createSpeculation(model, sequence, options.speculative);
    this.#verifier = new Verifier({
      sampler: this.#sampler,
      constraint,
      numTopLogprobs: limits.numTopLogprobs,
      accept: (tokenId) => this.#accept(tokenId),
      explain: (error) => model.nonFinite.fail(error, sequence.view.blocks),
    });
    for (const tokenId of constrained) this.#constraint?.accept(tokenId);
    this.#oneToken = {
      ...{ sequence, phase: 'decode', tokens: new Int32Array(1), offset: 0, count: 1, outputRows: firstRow },
      signal: options.signal,
      read: this.#verifier.begin(1, noTokens),
    };
    this.#state = {
      prompt: tokens,
      numConstrained: this.#constraint === undefined ? 0 : constrained.length,
      chosen: [],
      sampling,
      options: lastingOptions(options),
      rngState: () => this.#rngState ?? this.#sampler.state(),
      hasEnded: false,
    };
    for (const tokenId of tokens) {
      if (isImageId(tokenId)) continue;
      this.#sampler.accept(tokenId);
      this.#speculation?.accept(tokenId);
    }
    if (rngState !== undefined) this.#sampler.restore(rngState);
  }

  /**
   * Yields the tokens and returns the result. Aborting leaves the sequence with the tokens that were stored.
   * @param onState called with the first token; the object is updated in place
   */
  async *tokens(onState: (state: GenerationState) => void): AsyncGenerator<GeneratedToken, GenerationResult, void> {
    const { now } = this.#model.host;
    const { maxTokens, overflow } = this.#limits;
    const { signal } = this.#options;
    const { picks } = this.#verifier;
    const numShared = this.#sequence.begin(this.#prompt, dropsTokens(overflow), this.#numResumed > 0);
    const startMs = now();
    const numCached = numShared + (await this.#restorePages());
    const computeMs = now();
    await this.#prefill(maxTokens > 0);
    this.#storePages(numCached, now() - computeMs);
    if (picks.at(-1)?.ending === undefined && maxTokens > 1) await this.#speculation?.prepare(signal);
    const promptMs = now() - startMs;
    let pausedMs = 0; // while the caller handles the token
    let finishReason: FinishReason | undefined = maxTokens > 0 ? undefined : 'length';
    try {
      while (finishReason === undefined) {
        for (let index = 0; index < picks.length; index++) {
          const { token, isShown, ending, rngState } = picks[index] as Pick;
          if (index > 0) signal?.throwIfAborted();
          if (this.#state.chosen.push(token.tokenId) === 1) onState(this.#state);
          this.#rngState = rngState;
          finishReason = ending;
          if (finishReason !== undefined) this.#state.hasEnded = true;
          if (!isShown) continue;
          const handedOverMs = now();
          yield token;
          pausedMs += now() - handedOverMs;
        }
        if (finishReason === undefined) await this.#decode();
      }
    } finally {
      this.#speculation?.dispose();
      this.#forgetUnseen();
    }
    // the next prompt of a conversation begins with the answer
    this.#pagesOf?.save(this.#sequence, this.#sequence.tokens.length, this.#firstPrompt.length);
    return this.#result(finishReason, numCached, promptMs, now() - startMs - promptMs - pausedMs);
  }

  /** Adds the text of a token to the pieces, and tells whether the generation ends with it. */
  #accept(tokenId: number): AcceptedToken {
    const isEnd = this.#options.ignoreEos !== true && this.#model.eosIds.has(tokenId);
    let finishReason: FinishReason | undefined = isEnd ? 'eos' : undefined;
    let piece = '';
    if (!isEnd) {
      this.#generated.push(tokenId);
      this.#speculation?.accept(tokenId);
      piece = this.#text.push(tokenId);
      if (this.#text.isStopped || this.#constraint?.isComplete === true) finishReason = 'stop';
      else if (this.#generated.length >= this.#limits.maxTokens) finishReason = 'length';
      else if (this.#isFull()) finishReason = 'context';
    }
    if (finishReason !== undefined) piece += this.#text.flush();
    this.#pieces.push(piece);
    this.#accepted.text = piece;
    this.#accepted.isShown = !isEnd || piece !== '';
    this.#accepted.ending = finishReason;
    return this.#accepted;
  }

  /** Forgets tokens whose step accepted them from a draft, but which the caller did not take. */
  #forgetUnseen(): void {
    const numStored = this.#prompt.length + Math.max(0, this.#state.chosen.length - 1);
    if (this.#sequence.tokens.length > numStored) this.#sequence.truncate(numStored);
  }

  #isFull(): boolean {
    const { config, contextSize } = this.#model;
    const maxTokens = dropsTokens(this.#limits.overflow) ? (config.maxPositions ?? Infinity) : contextSize;
    return this.#prompt.length + this.#generated.length >= maxTokens;
  }

  /** Pages of prompts are computed by the policy of prefill, those of answers by the policy of decode. */
  get #pagesOf(): LoadedModel['promptCache'] {
    return this.#options.promptPhase === 'decode' ? undefined : this.#model.promptCache;
  }

  /** Restores stored pages; returns their number of tokens. */
  async #restorePages(): Promise<number> {
    return (await this.#pagesOf?.restore(this.#sequence, this.#firstPrompt, this.#options.signal)) ?? 0;
  }

  #storePages(numCached: number, milliseconds: number): void {
    if (this.#numResumed === 0) this.#pagesOf?.noteComputed(this.#prompt.length - numCached, milliseconds);
    this.#pagesOf?.save(this.#sequence, this.#firstPrompt.length);
  }

  /** The prompt without the tokens of a resumed generation. */
  get #firstPrompt(): Int32Array {
    return this.#prompt.subarray(0, this.#prompt.length - this.#numResumed);
  }

  /**
   * Computes the part of the prompt that is not cached, in chunks.
   * @param isRead whether the first token is chosen from the outputs of the last one
   */
  async #prefill(isRead: boolean): Promise<void> {
    const { scheduler, contextSize } = this.#model;
    const { signal, onPromptProgress, promptPhase = 'prefill' } = this.#options;
    const tokens = this.#prompt;
    const numPrompt = tokens.length - this.#numResumed;
    const fits = tokens.length < contextSize;
    const maxChunk = fits ? scheduler.chunks.maxTokens : Math.min(scheduler.chunks.maxTokens, chunkLimit(contextSize));
    let begin = this.#sequence.tokens.length; // also those of a preempted sequence
    onPromptProgress?.({ processedTokens: begin, totalTokens: tokens.length });
    while (begin < tokens.length) {
      signal?.throwIfAborted();
      const phase = begin < numPrompt ? promptPhase : 'decode';
      const isOne = phase === 'decode';
      const limit = begin < numPrompt ? numPrompt : tokens.length;
      const count = scheduler.chunks.endOf(tokens, begin, limit, isOne ? 1 : maxChunk) - begin;
      const isLast = begin + count === tokens.length;
      this.#sequence.grow(count);
      this.#makeRoom(count);
      await scheduler.run({
        sequence: this.#sequence,
        phase,
        tokens,
        offset: begin,
        count,
        outputRows: isLast && isRead ? [count - 1] : [],
        signal,
        read: isLast && isRead ? this.#verifier.begin(count, noTokens) : undefined,
      });
      begin += count;
      onPromptProgress?.({ processedTokens: begin, totalTokens: tokens.length });
    }
  }

  /** Decodes the last token, and what was drafted after it. */
  async #decode(): Promise<void> {
    const { signal } = this.#options;
    const { now } = this.#model.host;
    signal?.throwIfAborted();
    const numKnown = this.#countKnown();
    const speculation = this.#speculation;
    this.#sequence.grow(numKnown);
    const draft =
      speculation === undefined ? noTokens : await speculation.draft(numKnown, this.#maxDraft(numKnown), signal);
    this.#makeRoom(numKnown + draft.length);
    const beginMs = now();
    const step = this.#model.scheduler.run(this.#decodeRequest(numKnown, draft));
    this.#constraint?.prepare(); // while the step runs
    await step;
    const numPicked = this.#verifier.picks.length;
    speculation?.note(draft.length, numKnown, numPicked - 1, now() - beginMs);
    this.#numDecoded += numPicked;
  }

  /** Number of known tokens that are not in the cache: the last one, and those of steps that could not be kept in part. */
  #countKnown(): number {
    if (this.#speculation === undefined) return 1;
    return this.#prompt.length + this.#state.chosen.length - this.#sequence.tokens.length;
  }

  /**
   * Maximum number of drafted tokens: they must fit into the step, the context and the free part of the cache, so that they evict
   * and offload nothing; the last block may have room where the pool has none. None after an eviction, since rejected tokens would
   * leave its gaps to the next ones in another order, and none where tokens would change the rotation of all keys.
   */
  #maxDraft(numKnown: number): number {
    const { scheduler, contextSize, pool } = this.#model;
    const { view } = this.#sequence;
    if (view.numEvicted > 0) return 0;
    const numLeft = this.#limits.maxTokens - this.#generated.length - 1;
    const numStored = view.numTokens + numKnown;
    const fitting = Math.min(scheduler.maxDecodeTokens - numKnown, contextSize - numStored, numLeft);
    const max = this.#sequence.keepsRotation(numKnown + fitting) ? fitting : 0;
    if (max <= 0 || pool.hasRoomFor(view.id, numKnown + max)) return Math.max(0, max);
    const { blockSize } = pool.manager;
    const inBlock = Math.min(max, blockSize - (view.numSlots % blockSize) - numKnown);
    return inBlock > 0 && pool.hasRoomFor(view.id, numKnown + inBlock) ? inBlock : 0;
  }

  #decodeRequest(numKnown: number, drafted: readonly number[]): StepRequest {
    const { chosen } = this.#state;
    const read = this.#verifier.begin(numKnown, drafted);
    const count = numKnown + drafted.length;
    if (count > 1) {
      const tokens = Int32Array.from([...chosen.slice(-numKnown), ...drafted]);
      const outputRows = Array.from({ length: drafted.length + 1 }, (_, row) => numKnown - 1 + row);
      return { ...this.#oneToken, tokens, count, outputRows, read };
    }
    this.#oneToken.tokens[0] = chosen.at(-1) as number;
    return this.#oneToken;
  }

  /** Evicts tokens until `count` more fit, if the overflow policy says so. */
  #makeRoom(count: number): void {
    const { overflow } = this.#limits;
    if (!dropsTokens(overflow)) return;
    const { contextSize, pool, attention, noteLength } = this.#model;
    noteLength(this.#sequence.view.numTokens + count);
    const minSinks = attention.reads?.sinks ?? 0;
    this.#numEvicted += makeRoom(this.#sequence, count, contextSize, pool.manager.blockSize, overflow, minSinks);
  }

  /** @throws {CapacityError} when the context is full and the policy is `error` */
  #result(finishReason: FinishReason, numCached: number, promptMs: number, generateMs: number): GenerationResult {
    const { contextSize } = this.#model;
    const numPrompt = this.#prompt.length;
    if (finishReason === 'context' && this.#limits.overflow === 'error') {
      const needed = numPrompt + this.#generated.length + 1;
      throw new CapacityError({ resource: 'context', needed, available: contextSize, unit: 'tokens' });
    }
    const timings: GenerationTimings = {
      promptMs,
      generateMs,
      promptTokensPerSecond: perSecond(numPrompt - numCached, promptMs),
      tokensPerSecond: perSecond(this.#numDecoded, generateMs),
    };
    return {
      text: this.#pieces.join(''),
      tokens: this.#generated,
      promptTokens: numPrompt,
      cachedTokens: numCached,
      droppedTokens: this.#numDropped,
      evictedTokens: this.#numEvicted,
      finishReason,
      satisfiesConstraint: this.#constraint?.isSatisfied !== false,
      timings,
      ...(this.#speculation === undefined ? {} : { speculation: this.#speculation.metrics() }),
    };
  }
}

const firstRow: readonly number[] = [0];
const noTokens: readonly number[] = [];

function perSecond(count: number, ms: number): number {
  return ms > 0 ? (count * 1000) / ms : 0;
}
