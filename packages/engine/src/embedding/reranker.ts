/** A loaded reranker. */
import type { DecoderConfig, RerankerDescription } from '@winnow/models';
import type { Fallback, RecordProfile } from '@winnow/ops';
import { ArgumentError, NonFiniteError, checkOptions, describeValue, type OptionNames } from '@winnow/tensor';
import type { Tokenizer } from '@winnow/tokenizers';
import type { MemoryPlan } from '../plan/memory-plan.js';
import { positiveInteger } from '../plan/options.js';
import { runSliced } from '../runtime/compilation.js';
import { usualInstruction } from './judge-prompt.js';
import type { TextModelParts } from './model.js';
import { RankedTextEncoder, type RankedText } from './ranked-text.js';
import { EmbeddingStep } from './step.js';
import { Turns } from './turns.js';

export interface RerankProgress {
  readonly rankedDocuments: number;
  readonly totalDocuments: number;
  /** Tokens of the ranked documents, each with the query and special tokens. */
  readonly rankedTokens: number;
}

export interface RerankOptions {
  /** Number of documents to return, the best ones. Default: all. */
  readonly topN?: number;
  /** What to do with a document that exceeds the context: reject the call, or leave out its end. Default `error`. */
  readonly overflow?: 'error' | 'truncate';
  /** Whether scores are between 0 and 1, the logistic function of the model's logit. Default true; false: the logit. */
  readonly normalize?: boolean;
  /** What makes a document relevant, for Qwen3-Reranker. Default: its instruction for web search. */
  readonly instruction?: string;
  readonly signal?: AbortSignal;
  /** Called after every step. */
  readonly onProgress?: (progress: RerankProgress) => void;
}

const rerankOptionNames: OptionNames<RerankOptions> = {
  topN: true,
  overflow: true,
  normalize: true,
  instruction: true,
  signal: true,
  onProgress: true,
};

/** A document and its score. */
export interface RankedDocument {
  /** Index in the list of documents. */
  readonly index: number;
  readonly score: number;
  /** Number of tokens computed: query, document and special tokens. */
  readonly numTokens: number;
  /** Number of truncated tokens; more than 0 only with `truncate`. */
  readonly numDroppedTokens: number;
}

/** A model that scores how well documents answer a query. */
export interface Reranker {
  readonly name: string;
  readonly config: DecoderConfig;
  readonly tokenizer: Tokenizer;
  /** Whether the model has an instruction, as Qwen3-Reranker. */
  readonly hasInstruction: boolean;
  /** Maximum number of tokens of query and document together. */
  readonly contextSize: number;
  readonly plan: MemoryPlan;
  readonly backend: string;
  readonly fallbacks: readonly Fallback[];
  /** Notices about how the model was loaded. */
  readonly notices: readonly string[];
  /**
   * Scores each document with the query as one input, and returns the best first; equal scores in the order of the
   * list. A cross-encoder's score is `sigmoid(z)` of its only logit z; that of Qwen3-Reranker is the probability of
   * `yes` against `no`, which is `sigmoid(z_yes - z_no)`. Special tokens in the texts are text. The other documents
   * affect at most the last digits of a score. Concurrent calls take turns. Cost: one forward pass of query and
   * document per document.
   * @throws {CapacityError} for a document of which query and document exceed `contextSize`, unless `overflow` is
   *   `truncate`, and for a query that leaves no room for a document
   * @throws {ArgumentError} for wrong options, and for `instruction` with a model that has none
   * @throws {NonFiniteError} naming the first tensor with a value that is not finite, if a score is not
   * @throws the signal's reason when aborted
   */
  rerank(query: string, documents: readonly string[], options?: RerankOptions): Promise<RankedDocument[]>;
  /** Per op, when loaded with `profile`. */
  profile(): readonly RecordProfile[];
  /** Frees everything after the step that is running; calls in progress end with `ReleasedError`. */
  dispose(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface TextRerankerParts extends TextModelParts {
  readonly description: RerankerDescription;
}

export class TextReranker implements Reranker {
  readonly name: string;
  readonly backend: string;
  readonly config: DecoderConfig;
  readonly tokenizer: Tokenizer;
  readonly hasInstruction: boolean;
  readonly contextSize: number;
  readonly plan: MemoryPlan;
  readonly fallbacks: readonly Fallback[];
  readonly notices: readonly string[];
  readonly #parts: TextRerankerParts;
  readonly #encoder: RankedTextEncoder;
  readonly #step: EmbeddingStep;
  readonly #turns = new Turns();

  constructor(parts: TextRerankerParts) {
    const { config, tokenizer, description, plan, executable } = parts;
    this.name = parts.name;
    this.backend = parts.backend;
    this.config = config;
    this.tokenizer = tokenizer;
    this.hasInstruction = description.input === 'judge';
    this.contextSize = plan.contextSize;
    this.plan = plan.memory;
    this.fallbacks = executable.fallbacks;
    this.notices = parts.notices;
    this.#parts = parts;
    this.#encoder = new RankedTextEncoder(tokenizer, description);
    const output = { name: 'scores', size: description.numLabels } as const;
    this.#step = new EmbeddingStep(executable, parts.deviceRecovery, plan, output);
  }

  readonly rerank: Reranker['rerank'] = async (query, documents, options = {}) => {
    checkOptions(options, rerankOptionNames);
    this.#turns.checkOpen();
    const { overflow = 'error', normalize = true, instruction = usualInstruction, signal } = options;
    checkRequest(query, documents, overflow);
    if (options.instruction !== undefined && !this.hasInstruction) {
      const expected = 'no instruction, since cross-encoders have none';
      throw new ArgumentError({ argument: 'instruction', expected, actual: JSON.stringify(options.instruction) });
    }
    const topN = options.topN === undefined ? documents.length : positiveInteger('topN', options.topN);
    signal?.throwIfAborted();
    return this.#turns.take(async () => {
      this.#turns.checkOpen();
      // checks all documents first, so that a rejected one costs nothing
      const fitting = { contextSize: this.contextSize, overflow, instruction };
      const texts = await runSliced(this.#encoder.encodeAll(query, documents, fitting), signal);
      const logits = await this.#logits(texts, options);
      const ranked = texts.map(({ ids, numDroppedTokens }, index) => {
        const logit = logits[index] as number;
        const score = normalize ? 1 / (1 + Math.exp(-logit)) : logit;
        return { index, score, numTokens: ids.length, numDroppedTokens };
      });
      return ranked.toSorted((a, b) => (logits[b.index] as number) - (logits[a.index] as number)).slice(0, topN);
    });
  };

  readonly profile: Reranker['profile'] = () => this.#parts.executable.profile();

  readonly dispose: Reranker['dispose'] = () => this.#turns.dispose(() => this.#parts.release());

  readonly [Symbol.asyncDispose]: () => Promise<void> = () => this.dispose();

  /** One logit per text: the only label's, or that of yes minus that of no. @throws {NonFiniteError} */
  async #logits(texts: readonly RankedText[], { signal, onProgress }: RerankOptions): Promise<number[]> {
    const { numLabels } = this.#parts.description;
    const logits: number[] = [];
    let rankedTokens = 0;
    const runBatch = async (): Promise<void> => {
      this.#turns.checkOpen();
      signal?.throwIfAborted();
      const scores = await this.#step.run(signal);
      for (let begin = 0; begin < scores.length; begin += numLabels) {
        // a single label has no second one to compare with
        const [first = 0, second = 0] = scores.subarray(begin, begin + numLabels);
        rankedTokens += (texts[logits.length] as RankedText).ids.length;
        logits.push(first - second);
      }
      onProgress?.({ rankedDocuments: logits.length, totalDocuments: texts.length, rankedTokens });
    };
    try {
      for (const { ids, firstOfSecond } of texts) {
        if (!this.#step.hasRoom(ids.length)) await runBatch();
        this.#step.add(ids, firstOfSecond);
      }
      if (texts.length > 0) await runBatch();
    } finally {
      this.#step.clear();
    }
    const value = logits.find((logit) => !Number.isFinite(logit));
    if (value !== undefined) await this.#parts.nonFinite.fail(new NonFiniteError({ result: 'scores', value }));
    return logits;
  }
}

function checkRequest(query: unknown, documents: readonly unknown[], overflow: string): void {
  const wrong = [query, ...documents].findIndex((text) => typeof text !== 'string');
  if (wrong >= 0) {
    const argument = wrong === 0 ? 'query' : `documents[${wrong - 1}]`;
    throw new ArgumentError({ argument, expected: 'a string', actual: describeValue([query, ...documents][wrong]) });
  }
  if (overflow !== 'error' && overflow !== 'truncate') {
    throw new ArgumentError({ argument: 'overflow', expected: 'error | truncate', actual: String(overflow) });
  }
}
