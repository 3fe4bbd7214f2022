/** Counts tokens as the model does. The way of LangChain fetches the tokenizer of another model from the network. */
import type { MessageContent } from '@langchain/core/messages';
import type { Model } from '@winnow/engine';

/** Parts that are no text count nothing. */
export function countTokens({ tokenizer }: Model, content: MessageContent): number {
  const texts =
    typeof content === 'string'
      ? [content]
      : content.map((part) => (part.type === 'text' && typeof part['text'] === 'string' ? part['text'] : ''));
  return texts.reduce((sum, text) => sum + tokenizer.encode(text, { addSpecialTokens: false }).length, 0);
}
