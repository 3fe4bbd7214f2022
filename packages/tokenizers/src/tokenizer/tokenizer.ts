/** The public contract of a tokenizer. Implementations: `vocabulary-tokenizer.ts`. */
import type { Sliced } from '@winnow/tensor';

/** How `Tokenizer.encode` treats special tokens. */
export interface EncodeOptions {
  /** Add the special tokens that the model expects around a text: BOS / EOS, or CLS / SEP. Default `true`. */
  readonly addSpecialTokens?: boolean;
  /**
   * Text that matches a special token (`<|im_start|>`) becomes that single id. Default `true`. With `false` it is
   * tokenized like any other text, which is the safe choice for untrusted text. User-defined tokens (added words,
   * not control tokens) are matched in both cases.
   */
  readonly parseSpecialTokens?: boolean;
}

/** How `Tokenizer.decode` treats special tokens. */
export interface DecodeOptions {
  /** Leave out control and unknown tokens. Default `false`: their text is included. */
  readonly skipSpecialTokens?: boolean;
}

/** Options of `Tokenizer.createDetokenizer`. */
export interface DetokenizerOptions extends DecodeOptions {
  /**
   * The ids continue a text that was decoded elsewhere (a generation after its prompt), so the space that the
   * vocabulary adds before the first word is kept. Default `false`: the stream equals `decode` of all its ids.
   */
  readonly continuation?: boolean;
}

/** Turns ids into text one by one; never splits a character. */
export interface Detokenizer {
  /** Adds one id and returns the characters that are complete now (often none or several). */
  push(id: number): string;
  /** Flushes the rest, with U+FFFD for an incomplete character, and resets. */
  flush(): string;
}

/** The special tokens around two texts that a model reads as one input, as cross-encoders do. */
export interface PairTemplate {
  readonly prefix: readonly number[];
  /** Between the two texts. */
  readonly middle: readonly number[];
  readonly suffix: readonly number[];
  /** Segment (token type) of the second text and of `suffix`; everything before it is segment 0. */
  readonly secondType: 0 | 1;
}

/** Converts text to token ids and back. Immutable, safe to share between sessions. */
export interface Tokenizer {
  /** Algorithm family, for display. */
  readonly kind: 'spm' | 'bpe' | 'wordpiece' | 'unigram' | 'wordlevel' | 'none';
  /** Number of ids: valid ids are `0 <= id < vocabSize`. */
  readonly vocabSize: number;
  readonly bosId: number | undefined;
  readonly eosId: number | undefined;
  /** All ids that end generation: EOS first, then end-of-turn, end-of-message and the like. */
  readonly eosIds: readonly number[];
  readonly unkId: number | undefined;
  readonly padId: number | undefined;
  readonly sepId: number | undefined;
  readonly clsId: number | undefined;
  readonly maskId: number | undefined;
  /**
   * Maximum number of UTF-8 bytes that one id of `encode` stands for: a text of n bytes has at least n / maxTokenBytes ids.
   * Undefined if a text may lose bytes before it is split into tokens, or if one unknown token can stand for any word.
   */
  readonly maxTokenBytes: number | undefined;
  /** Whether `encode` adds a token (BOS, CLS) before the text when `addSpecialTokens` is on. */
  readonly addBos: boolean;
  /** Whether `encode` adds a token (EOS, SEP) after the text when `addSpecialTokens` is on. */
  readonly addEos: boolean;
  /** How two texts become one input; undefined when the files do not declare it. */
  readonly pair: PairTemplate | undefined;
  /**
   * Ids of a text. Lone surrogates count as U+FFFD. A text that already starts with BOS gets a second one when both
   * options are on.
   * @throws CapacityError for a word of millions of characters without any break (up to 2^20 characters always work)
   */
  encode(text: string, options?: EncodeOptions): Int32Array;
  /** The same in slices of a few milliseconds, so that megabytes of text need not block an event loop. */
  encodeSliced(text: string, options?: EncodeOptions): Sliced<Int32Array>;
  /**
   * Text of ids. Invalid UTF-8 becomes U+FFFD. The space that `encode` adds before the first word is removed.
   * @throws ArgumentError for an id outside the vocabulary
   */
  decode(ids: ArrayLike<number>, options?: DecodeOptions): string;
  /**
   * The bytes a token adds to a text (a copy); for a special token, the UTF-8 of its text.
   * @throws ArgumentError for an id outside the vocabulary
   */
  tokenBytes(id: number): Uint8Array;
  /**
   * The token as it is written in the vocabulary (`▁the`, `Ġthe`, `<0x0A>`).
   * @throws ArgumentError for an id outside the vocabulary
   */
  tokenText(id: number): string;
  /** True for control and unknown tokens, which `skipSpecialTokens` leaves out. */
  isSpecial(id: number): boolean;
  /** Id of a token as it is written in the vocabulary. */
  idOf(text: string): number | undefined;
  /** A detokenizer for one stream of ids. */
  createDetokenizer(options?: DetokenizerOptions): Detokenizer;
}
