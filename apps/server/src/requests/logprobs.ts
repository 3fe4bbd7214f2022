/** Log-probabilities in the two formats of the API. */
import type { FinishReason, GeneratedToken, TokenLogprob } from '@winnow/engine';
import type { GenerativeModel } from '../options.js';
import type { ChatLogprobs } from '../schemas/chat.js';
import type { CompletionLogprobs } from '../schemas/completions.js';

type Tokenizer = GenerativeModel['tokenizer'];
type ChatTokenLogprob = ChatLogprobs['content'][number];

/**
 * Finds the tokens that belong to the answer. The text of a token may be held back as the possible start of a stop
 * sequence, so a token is released when some of its text is; tokens of a stop sequence never are.
 */
export class AnswerTokens {
  readonly #tokenizer: Tokenizer;
  readonly #detokenizer: ReturnType<Tokenizer['createDetokenizer']>;
  /** Tokens without released text, and where their text begins, in characters. */
  #pending: { readonly token: GeneratedToken; readonly begin: number; readonly end: number }[] = [];
  #numDecoded = 0;
  #numReleased = 0;

  /** @param prompt as for the generation: after only special tokens, the answer begins a text */
  constructor(tokenizer: Tokenizer, prompt: Int32Array) {
    this.#tokenizer = tokenizer;
    const continuation = prompt.some((tokenId) => tokenId >= 0 && !tokenizer.isSpecial(tokenId)); // rows of images are no text
    this.#detokenizer = tokenizer.createDetokenizer({ skipSpecialTokens: true, continuation });
  }

  /** Adds a token and returns those that now belong to the answer. */
  push(token: GeneratedToken): GeneratedToken[] {
    const { tokenId, text } = token;
    const isText = tokenId < this.#tokenizer.vocabSize && !this.#tokenizer.isSpecial(tokenId);
    const begin = this.#numDecoded;
    if (isText) this.#numDecoded += this.#detokenizer.push(tokenId).length;
    this.#numReleased += text.length;
    // control tokens that appear as text
    this.#numDecoded = Math.max(this.#numDecoded, this.#numReleased);
    // an end token may release held-back text, but is not part of the answer
    if (isText || text === '') this.#pending.push({ token, begin, end: this.#numDecoded });
    const numReleased = this.#numReleased;
    return this.#take(({ begin, end }) => begin < numReleased || end <= numReleased);
  }

  /** The remaining tokens of the answer. */
  end(finishReason: FinishReason): GeneratedToken[] {
    return this.#take(() => finishReason !== 'stop');
  }

  #take(isReleased: (entry: { begin: number; end: number }) => boolean): GeneratedToken[] {
    const first = this.#pending.findIndex((entry) => !isReleased(entry));
    const count = first < 0 ? this.#pending.length : first;
    return this.#pending.splice(0, count).map(({ token }) => token);
  }
}

export function chatLogprob(token: GeneratedToken, tokenizer: Tokenizer): ChatTokenLogprob {
  return {
    ...described(token, tokenizer),
    top_logprobs: token.topLogprobs.map((top) => described(top, tokenizer)),
  };
}

function described({ tokenId, logprob }: TokenLogprob, tokenizer: Tokenizer): Omit<ChatTokenLogprob, 'top_logprobs'> {
  const bytes = bytesOf(tokenId, tokenizer);
  return { token: textOf(bytes), logprob, bytes: Array.from(bytes) };
}

/** Embedding tables often have more rows than the vocabulary: rows without a token have no text. */
function bytesOf(tokenId: number, tokenizer: Tokenizer): Uint8Array {
  return tokenId < tokenizer.vocabSize ? tokenizer.tokenBytes(tokenId) : new Uint8Array(0);
}

const decoder = new TextDecoder();

/** An incomplete character becomes U+FFFD. */
function textOf(bytes: Uint8Array): string {
  return decoder.decode(bytes);
}

/** A token of an answer or of an echoed prompt, whose first token has no log-probability. */
export interface ScoredToken {
  readonly tokenId: number;
  readonly logprob: number | null;
  readonly topLogprobs: readonly TokenLogprob[] | null;
  /** Characters that it adds to the text. Default: those of its bytes. */
  readonly numChars?: number;
}

/** Collects the logprobs of one answer of `/v1/completions`. */
export class CompletionLogprobWriter {
  readonly #tokenizer: Tokenizer;
  #offset = 0;

  constructor(tokenizer: Tokenizer) {
    this.#tokenizer = tokenizer;
  }

  /** The entries of the next tokens. Offsets count characters of the answer. */
  write(tokens: readonly ScoredToken[]): CompletionLogprobs {
    const logprobs: CompletionLogprobs = { tokens: [], token_logprobs: [], top_logprobs: [], text_offset: [] };
    for (const token of tokens) {
      const text = this.#textOf(token.tokenId);
      logprobs.tokens.push(text);
      logprobs.token_logprobs.push(token.logprob);
      logprobs.top_logprobs.push(this.#topOf(token));
      logprobs.text_offset.push(this.#offset);
      this.#offset += token.numChars ?? text.length;
    }
    return logprobs;
  }

  /**
   * The most probable tokens and the token itself, by text: of tokens with the same text, such as parts of characters,
   * the most probable one.
   */
  #topOf({ tokenId, logprob, topLogprobs }: ScoredToken): Record<string, number> | null {
    if (topLogprobs === null || logprob === null) return null;
    const top = new Map<string, number>();
    for (const entry of [...topLogprobs, { tokenId, logprob }]) {
      const text = this.#textOf(entry.tokenId);
      if (!top.has(text)) top.set(text, entry.logprob);
    }
    return Object.fromEntries(top);
  }

  #textOf(tokenId: number): string {
    return textOf(bytesOf(tokenId, this.#tokenizer));
  }
}
