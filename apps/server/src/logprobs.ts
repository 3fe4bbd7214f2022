/** Log-probabilities in the two formats of the API. */
import type { GeneratedToken, TokenLogprob } from '@winnow/engine';
import type { GenerativeModel } from './options.js';
import type { ChatLogprobs } from './schemas/chat.js';
import type { CompletionLogprobs } from './schemas/completions.js';

type Tokenizer = GenerativeModel['tokenizer'];
type ChatTokenLogprob = ChatLogprobs['content'][number];

/** An end token that releases held-back text is not part of the answer. */
export function isCounted({ tokenId, text }: GeneratedToken, tokenizer: Tokenizer): boolean {
  return text === '' || tokenId >= tokenizer.vocabSize || !tokenizer.isSpecial(tokenId);
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

/** Collects the logprobs of one answer of `/v1/completions`. */
export class CompletionLogprobWriter {
  readonly #tokenizer: Tokenizer;
  #offset = 0;

  constructor(tokenizer: Tokenizer) {
    this.#tokenizer = tokenizer;
  }

  /** The entries of the next tokens. Offsets count characters of the answer. */
  write(tokens: readonly GeneratedToken[]): CompletionLogprobs {
    const logprobs: CompletionLogprobs = { tokens: [], token_logprobs: [], top_logprobs: [], text_offset: [] };
    for (const token of tokens) {
      const text = textOf(bytesOf(token.tokenId, this.#tokenizer));
      logprobs.tokens.push(text);
      logprobs.token_logprobs.push(token.logprob);
      logprobs.top_logprobs.push(
        Object.fromEntries(
          token.topLogprobs.map(({ tokenId, logprob }) => [textOf(bytesOf(tokenId, this.#tokenizer)), logprob]),
        ),
      );
      logprobs.text_offset.push(this.#offset);
      this.#offset += text.length;
    }
    return logprobs;
  }
}
