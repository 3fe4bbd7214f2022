/**
 * The prompt of Qwen3-Reranker (https://huggingface.co/Qwen/Qwen3-Reranker-0.6B, model card): the model answers whether a
 * document meets the requirements, and the score compares the logits of `yes` and `no`.
 */
import type { ModelFile } from '@winnow/models';

const system =
  'Judge whether the Document meets the requirements based on the Query and the Instruct provided. ' +
  'Note that the answer can only be "yes" or "no".';

/** Before and after the content, with special tokens. */
export const judgeFrame: { readonly begin: string; readonly end: string } = {
  begin: `<|im_start|>system\n${system}<|im_end|>\n<|im_start|>user\n`,
  end: '<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n',
};

/** The instruction that the model was trained with for web search. */
export const usualInstruction = 'Given a web search query, retrieve relevant passages that answer the query';

/** The content up to the document, which follows without a separator. */
export function judgeQuestion(instruction: string, query: string): string {
  return `<Instruct>: ${instruction}\n<Query>: ${query}\n<Document>: `;
}

/** The key in which llama.cpp's converter stores the prompt. */
const templateKey = 'tokenizer.chat_template.rerank';

/** @throws {FormatError} for a file that declares another prompt, whose scores would differ */
export function checkRerankTemplate({ format, fields }: ModelFile): void {
  const template = format === 'gguf' ? fields.raw(templateKey) : undefined;
  const known = `${judgeFrame.begin}${judgeQuestion(usualInstruction, '{query}')}{document}${judgeFrame.end}`;
  if (template !== undefined && template !== known) {
    throw fields.refusal(templateKey, 'the prompt of Qwen3-Reranker', template);
  }
}
