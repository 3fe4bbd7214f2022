/** The contract: what a program needs of something that generates text, whatever computes it. */

/** Text, or token ids used as they are. */
export type InferencePrompt = string | ArrayLike<number>;

export interface InferenceOptions {
  /** Most tokens to generate. Default: as many as fit. */
  readonly maxTokens?: number;
  /** 0: always the most probable token. Default: what suits the model. */
  readonly temperature?: number;
  /** Choose among so many of the most probable tokens; 0: all. */
  readonly topK?: number;
  /** Choose among the fewest tokens whose probabilities sum to this. */
  readonly topP?: number;
  /** The same seed gives the same text. Default: drawn at random. */
  readonly seed?: number;
  /** Texts that end the generation; they are not part of the output. */
  readonly stop?: readonly string[];
  /** The text has to be JSON that this schema accepts. Only where `supportsJsonSchema`. */
  readonly jsonSchema?: boolean | { readonly [keyword: string]: unknown };
  /** Ends the generation, which then fails with the signal's reason. */
  readonly signal?: AbortSignal;
}

/** One generated token. */
export interface InferenceToken {
  readonly tokenId: number;
  /** Text that became certain with it: whole characters, and nothing that may belong to a stop text. May be empty. */
  readonly text: string;
  /** Natural logarithm of its probability, before temperature and other choices. */
  readonly logprob: number;
}

/**
 * Why a generation ended: the end token of the model (`eos`), a stop text or a complete JSON value (`stop`), `maxTokens`
 * (`length`), or no room for more (`context`).
 */
export type InferenceFinishReason = 'eos' | 'stop' | 'length' | 'context';

export interface InferenceResult {
  readonly text: string;
  /** Without the end token. */
  readonly tokens: readonly number[];
  readonly finishReason: InferenceFinishReason;
  readonly numPromptTokens: number;
}

/** A generation that starts when it is first iterated or asked for its result. Leaving a loop early ends it. */
export interface InferenceStream extends AsyncIterable<InferenceToken> {
  /** What is left is produced, then the whole is returned. */
  result(): Promise<InferenceResult>;
}

/** Counts since the beginning. */
export interface InferenceMetrics {
  /** Generations that began. */
  readonly numGenerations: number;
  /** Of them, those that go on. */
  readonly numActive: number;
  /** Of them, those that failed, were aborted or left early. */
  readonly numFailed: number;
  /** Of generations that came to an end. */
  readonly numPromptTokens: number;
  readonly numGeneratedTokens: number;
  /** Milliseconds spent on them: on prompts and first tokens, on further tokens. */
  readonly promptMs: number;
  readonly generateMs: number;
}

/** Something that generates text. Calls may run at the same time; each behaves as if it were alone. */
export interface InferenceBackend {
  readonly name: string;
  readonly vocabSize: number;
  /** Most tokens of a prompt and its answer together. */
  readonly contextSize: number;
  readonly supportsJsonSchema: boolean;
  /** The whole answer. @throws when the prompt does not fit, is empty or has ids outside the vocabulary */
  generate(prompt: InferencePrompt, options?: InferenceOptions): Promise<InferenceResult>;
  /** The same, token by token; errors come from the iteration and from `result`. */
  generateStream(prompt: InferencePrompt, options?: InferenceOptions): InferenceStream;
  /**
   * What the model says about the token after the prompt: logits, shifted so that their exponentials sum to 1.
   * @returns `[vocabSize]`
   */
  logits(prompt: InferencePrompt, options?: Pick<InferenceOptions, 'signal'>): Promise<Float32Array>;
  metrics(): InferenceMetrics;
}
