/** The contract of text generation, independent of the implementation. */

/** Text, or token ids, which are used unchanged. */
export type InferencePrompt = string | ArrayLike<number>;

export interface InferenceOptions {
  /** Maximum number of tokens to generate. Default: as many as fit. */
  readonly maxTokens?: number;
  /** 0: greedy decoding. Default: as the model recommends. */
  readonly temperature?: number;
  /** Sample from the k most probable tokens; 0: all. Default: as the model recommends. */
  readonly topK?: number;
  /** Sample from the smallest set of tokens whose probabilities sum to p; 1: all. Default: as the model recommends. */
  readonly topP?: number;
  /** The same seed gives the same text. Default: random. */
  readonly seed?: number;
  /** Stop sequences, which are not part of the output. Default: none. */
  readonly stop?: readonly string[];
  /** JSON schema that the text must satisfy. Only if `supportsJsonSchema`. Default: none. */
  readonly jsonSchema?: boolean | { readonly [keyword: string]: unknown };
  /** Aborts the generation, which then fails with the signal's reason. */
  readonly signal?: AbortSignal;
}

/** One generated token. */
export interface InferenceToken {
  readonly tokenId: number;
  /** Text that became final with this token: whole characters that cannot be part of a stop sequence. May be empty. */
  readonly text: string;
  /** Natural logarithm of its probability, before temperature and other sampling options. */
  readonly logprob: number;
}

/**
 * Why a generation ended: the end token of the model (`eos`), a stop sequence or a complete JSON value (`stop`),
 * `maxTokens` (`length`), or a full context (`context`).
 */
export type InferenceFinishReason = 'eos' | 'stop' | 'length' | 'context';

export interface InferenceResult {
  readonly text: string;
  /** Without the end token. */
  readonly tokens: readonly number[];
  readonly finishReason: InferenceFinishReason;
  readonly numPromptTokens: number;
}

/** A generation that starts when it is first iterated or its result is requested. Leaving a loop early ends it. */
export interface InferenceStream extends AsyncIterable<InferenceToken> {
  /** Generates the remaining tokens and returns the complete result. */
  result(): Promise<InferenceResult>;
}

/** Counts since the beginning. */
export interface InferenceMetrics {
  /** Started generations. */
  readonly numGenerations: number;
  /** Running generations. */
  readonly numActive: number;
  /** Generations that failed, were aborted or left early. */
  readonly numFailed: number;
  /** Tokens of completed generations. */
  readonly numPromptTokens: number;
  readonly numGeneratedTokens: number;
  /** Their time in milliseconds: prompts and first tokens, and further tokens. */
  readonly promptMs: number;
  readonly generateMs: number;
}

/** A text generator. Calls may run concurrently; each behaves as if it were alone. */
export interface InferenceBackend {
  readonly name: string;
  readonly vocabSize: number;
  /** Maximum number of tokens of a prompt and its answer. */
  readonly contextSize: number;
  readonly supportsJsonSchema: boolean;
  /** Returns the complete answer. @throws when the prompt does not fit, is empty or has ids outside the vocabulary */
  generate(prompt: InferencePrompt, options?: InferenceOptions): Promise<InferenceResult>;
  /** Streams the answer token by token; errors surface in the iteration and in `result`. */
  generateStream(prompt: InferencePrompt, options?: InferenceOptions): InferenceStream;
  /**
   * Log-probabilities of the token after the prompt: logits, shifted so that their exponentials sum to 1.
   * @returns `[vocabSize]`
   */
  logits(prompt: InferencePrompt, options?: Pick<InferenceOptions, 'signal'>): Promise<Float32Array>;
  metrics(): InferenceMetrics;
}
