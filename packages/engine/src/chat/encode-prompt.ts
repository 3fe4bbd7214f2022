/** Encodes prompts of all kinds as token ids. */
import { ArgumentError, CapacityError, FormatError, finish, type Sliced } from '@winnow/tensor';
import type { Tokenizer } from '@winnow/tokenizers';
import type { ImageInput } from '../images/image-encoder.js';
import type { ChatMessage, ChatTemplate } from './template.js';

/** A prompt without images: text, token ids (used unchanged), or a conversation for the model's chat template. */
export type TextPrompt = string | ArrayLike<number> | readonly ChatMessage[];

/** A prompt in which each token of an image, such as `<image>`, stands for one of the images, in the same order. */
export interface ImagePrompt {
  readonly prompt: string | ArrayLike<number>;
  readonly images: readonly ImageInput[];
}

/** A prompt. Messages of a conversation may have images. */
export type Prompt = TextPrompt | ImagePrompt;

/** The text of a prompt and its images. */
export function partsOfPrompt(prompt: Prompt): { readonly text: TextPrompt; readonly images: readonly ImageInput[] } {
  if (typeof prompt === 'object' && 'images' in prompt) return { text: prompt.prompt, images: prompt.images };
  if (typeof prompt === 'string' || isTokenIds(prompt)) return { text: prompt, images: [] };
  return { text: prompt, images: prompt.flatMap(({ images = [] }) => images) };
}

/**
 * Text gets BOS and EOS as the tokenizer specifies. A conversation gets BOS unless its template already wrote it, and
 * never EOS, since the answer follows. Token ids are used unchanged. An empty text becomes the BOS token.
 * @param vocabSize rows of the model's embedding table, which may differ from the tokenizer's vocabulary
 * @throws {ArgumentError} for an empty prompt, ids outside the table, and a conversation without a chat template
 * @throws {FormatError} when the tokenizer gives ids outside the table
 */
export function encodePrompt(
  prompt: TextPrompt,
  tokenizer: Tokenizer,
  chatTemplate: ChatTemplate | undefined,
  vocabSize: number,
): Int32Array {
  return finish(encodePromptSliced(prompt, tokenizer, chatTemplate, vocabSize));
}

/** The same in slices. @param isImage whether a negative id is a row of an image that is in memory */
export function* encodePromptSliced(
  prompt: TextPrompt,
  tokenizer: Tokenizer,
  chatTemplate: ChatTemplate | undefined,
  vocabSize: number,
  isImage: (id: number) => boolean = () => false,
): Sliced<Int32Array> {
  const ids = isTokenIds(prompt)
    ? checkedIds(prompt, vocabSize, isImage)
    : yield* encodeText(prompt, tokenizer, chatTemplate);
  checkTokens(ids, vocabSize);
  if (ids.length > 0) return ids;
  if (prompt === '' && tokenizer.bosId !== undefined) return Int32Array.of(tokenizer.bosId);
  throw new ArgumentError({ argument: 'prompt', expected: 'at least one token', actual: 'none' });
}

/** @throws {FormatError} when the tokenizer returned ids outside the table */
export function checkTokens(ids: Int32Array, vocabSize: number): void {
  for (const id of ids) {
    if (id < vocabSize) continue;
    const message = `expected ids below the ${vocabSize} rows of the embedding table, got ${id}`;
    throw new FormatError({ source: 'tokenizer', field: 'vocabulary', message });
  }
}

function isTokenIds(prompt: TextPrompt): prompt is ArrayLike<number> {
  return typeof prompt !== 'string' && typeof prompt[0] !== 'object';
}

function checkedIds(prompt: ArrayLike<number>, vocabSize: number, isImage: (id: number) => boolean): Int32Array {
  for (let index = 0; index < prompt.length; index++) {
    const id = prompt[index] as number;
    if (!Number.isSafeInteger(id) || (id < 0 && !isImage(id)) || id >= vocabSize) {
      throw new ArgumentError({
        argument: `prompt[${index}]`,
        expected: `a token id below ${vocabSize}`,
        actual: String(id),
      });
    }
  }
  return Int32Array.from(prompt);
}

function encodeText(
  prompt: string | readonly ChatMessage[],
  tokenizer: Tokenizer,
  chatTemplate: ChatTemplate | undefined,
): Sliced<Int32Array> {
  if (typeof prompt === 'string') return tokenizer.encodeSliced(prompt);
  return encodeConversation(prompt, tokenizer, chatTemplate);
}

/**
 * Rejects a text that is too long for a context by its length, before the cost of encoding it.
 * @throws {CapacityError} when the text has at least `contextSize` tokens for sure
 */
export function checkTextLength(text: string, tokenizer: Tokenizer, contextSize: number): void {
  const { maxTokenBytes } = tokenizer;
  if (maxTokenBytes === undefined) return;
  // UTF-8 has at least one byte per code unit.
  const needed = Math.ceil(text.length / maxTokenBytes);
  if (needed < contextSize) return;
  throw new CapacityError({ resource: 'context', needed, available: contextSize, unit: 'tokens' });
}

/** @throws {ArgumentError} without a chat template, or when the template rejects the conversation */
export function* encodeConversation(
  messages: readonly ChatMessage[],
  tokenizer: Tokenizer,
  chatTemplate: ChatTemplate | undefined,
): Sliced<Int32Array> {
  return yield* encodeRendered(yield* renderConversation(messages, chatTemplate, {}), tokenizer, Infinity);
}

/** The prompt as text. @throws {ArgumentError} without a chat template, or when it rejects the conversation */
export function* renderConversation(
  messages: readonly ChatMessage[],
  chatTemplate: ChatTemplate | undefined,
  variables: Readonly<Record<string, unknown>>,
): Sliced<string> {
  if (chatTemplate === undefined) {
    const expected = 'text or token ids, since this model has no chat template';
    throw new ArgumentError({ argument: 'prompt', expected, actual: 'a conversation' });
  }
  return yield* chatTemplate.renderSliced(messages, { variables });
}

/**
 * Tokens of a text that a chat template has rendered.
 * @param contextSize texts that are longer for sure are rejected before they are encoded
 * @throws {CapacityError} for such a text
 */
export function* encodeRendered(text: string, tokenizer: Tokenizer, contextSize: number): Sliced<Int32Array> {
  checkTextLength(text, tokenizer, contextSize);
  const ids = yield* tokenizer.encodeSliced(text, { addSpecialTokens: false });
  const { addBos, bosId } = tokenizer;
  return addBos && bosId !== undefined && ids[0] !== bosId ? withFirst(bosId, ids) : ids;
}

function withFirst(id: number, ids: Int32Array): Int32Array {
  const all = new Int32Array(ids.length + 1);
  all[0] = id;
  all.set(ids, 1);
  return all;
}
