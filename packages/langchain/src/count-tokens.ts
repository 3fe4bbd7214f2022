/** Counts tokens with the model's tokenizer. LangChain's default downloads the tokenizer of another model. */
import type { MessageContent } from '@langchain/core/messages';
import type { Model } from '@winnow/engine';

/** Parts that are not text count as zero. */
export function countTokens({ tokenizer }: Model, content: MessageContent): number {
  const texts =
    typeof content === 'string'
      ? [content]
      : content.map((part) => (part.type === 'text' && typeof part['text'] === 'string' ? part['text'] : ''));
  return texts.reduce((sum, text) => sum + tokenizer.encode(text, { addSpecialTokens: false }).length, 0);
}
