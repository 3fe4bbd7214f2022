/** Prompts of all kinds to token ids. */
import { ArgumentError } from '@winnow/tensor';
import type { Tokenizer } from '@winnow/tokenizers';
import type { ChatMessage, ChatTemplate } from './chat-template.js';
import type { Prompt } from './types.js';

/**
 * Text gets BOS and EOS as the model wants them; a conversation gets BOS only when its template does not write it;
 * token ids are used as they are. An empty text is the model's BOS token.
 * @throws {ArgumentError} for no tokens at all, ids outside the vocabulary, and a conversation without a chat template
 */
export function encodePrompt(prompt: Prompt, tokenizer: Tokenizer, chatTemplate: ChatTemplate | undefined): Int32Array {
  const ids = typeof prompt === 'string' ? tokenizer.encode(prompt) : encodeList(prompt, tokenizer, chatTemplate);
  if (ids.length > 0) return ids;
  if (prompt === '' && tokenizer.bosId !== undefined) return Int32Array.of(tokenizer.bosId);
  throw new ArgumentError({ argument: 'prompt', expected: 'at least one token', actual: 'none' });
}

function encodeList(
  prompt: Exclude<Prompt, string>,
  tokenizer: Tokenizer,
  chatTemplate: ChatTemplate | undefined,
): Int32Array {
  if (isConversation(prompt)) {
    if (chatTemplate === undefined) {
      const expected = 'text or token ids, since this model has no chat template';
      throw new ArgumentError({ argument: 'prompt', expected, actual: 'a conversation' });
    }
    const text = chatTemplate.render(prompt);
    const bos = tokenizer.bosId === undefined ? '' : tokenizer.tokenText(tokenizer.bosId);
    return tokenizer.encode(text, { addSpecialTokens: bos === '' || !text.startsWith(bos) });
  }
  const ids = Int32Array.from(prompt);
  for (let index = 0; index < prompt.length; index++) {
    const id = prompt[index] as number;
    if (!Number.isSafeInteger(id) || id < 0 || id >= tokenizer.vocabSize) {
      throw new ArgumentError({
        argument: `prompt[${index}]`,
        expected: `a token id below ${tokenizer.vocabSize}`,
        actual: String(id),
      });
    }
  }
  return ids;
}

function isConversation(prompt: Exclude<Prompt, string>): prompt is readonly ChatMessage[] {
  return typeof prompt[0] === 'object';
}
