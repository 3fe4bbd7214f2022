/** Splits texts into token sequences that fit the context. */
import { ArgumentError, CapacityError } from '@winnow/tensor';
import type { Tokenizer } from '@winnow/tokenizers';
import { checkTokens } from '../chat/encode-prompt.js';

/** What to do with a text that exceeds the context. */
export type TextOverflow =
  /** Reject it with a `CapacityError`. */
  | 'error'
  /** Embed its beginning, keeping the special tokens at its end. The result reports it. */
  | 'truncate'
  /** Embed chunks of about equal length and average their vectors, weighted by token count. */
  | 'chunk-average';

/** Characters of short texts that are encoded at once. */
export const charactersPerSlice = 4096;

/** Text, or token ids (used unchanged). */
export type EmbeddingInput = string | ArrayLike<number>;

/** The special tokens that a tokenizer adds around a text. */
export interface Frame {
  readonly begin: Int32Array;
  readonly end: Int32Array;
}

/** Encodes an empty text to find them; empty for a model without a tokenizer. */
export function frameOf(tokenizer: Tokenizer): Frame {
  const { addBos, addEos } = tokenizer;
  const ids = addBos || addEos ? tokenizer.encode('') : new Int32Array(0);
  const numBefore = Math.max(0, ids.length - (addEos ? 1 : 0));
  return { begin: ids.slice(0, numBefore), end: ids.slice(numBefore) };
}

/** @throws {ArgumentError} for an empty input, and ids outside the table of `vocabSize` rows */
export function checkedInput(ids: ArrayLike<number>, argument: string, vocabSize: number): Int32Array {
  checkNotEmpty(ids, argument);
  for (let index = 0; index < ids.length; index++) {
    const id = ids[index] as number;
    if (Number.isSafeInteger(id) && id >= 0 && id < vocabSize) continue;
    const expected = `a token id below ${vocabSize}`;
    throw new ArgumentError({ argument: `${argument}[${index}]`, expected, actual: String(id) });
  }
  return Int32Array.from(ids);
}

/** @throws {ArgumentError | FormatError} for an empty text, and when the tokenizer returned ids outside the table */
export function checkedText(ids: Int32Array, argument: string, vocabSize: number): Int32Array {
  checkNotEmpty(ids, argument);
  checkTokens(ids, vocabSize);
  return ids;
}

function checkNotEmpty({ length }: ArrayLike<number>, argument: string): void {
  if (length === 0) throw new ArgumentError({ argument, expected: 'at least one token', actual: 'none' });
}

/** A text in chunks, each framed by special tokens. */
export interface FittedText {
  readonly chunks: readonly Int32Array[];
  readonly numDroppedTokens: number;
  /** How many tokens at the beginning of each chunk are attended to. Default: all. */
  readonly numAttended?: readonly number[];
  /** Ids of tokens without a vector among the multi-vectors. Default: only the first token has none. */
  readonly skippedIds?: ReadonlySet<number>;
}

/** @throws {CapacityError} for a text that is too long, with overflow `error` */
export function fitText(
  ids: Int32Array,
  argument: string,
  contextSize: number,
  overflow: TextOverflow,
  frame: Frame,
): FittedText {
  if (ids.length <= contextSize) return { chunks: [ids], numDroppedTokens: 0 };
  const begin = startsWith(ids, frame.begin) ? frame.begin : new Int32Array(0);
  const end = endsWith(ids, frame.end) ? frame.end : new Int32Array(0);
  const room = contextSize - begin.length - end.length;
  if (overflow === 'error' || room < 1) {
    const hint = 'use overflow truncate or chunk-average, or a larger context if the model supports it';
    throw new CapacityError({ resource: argument, needed: ids.length, available: contextSize, unit: 'tokens', hint });
  }
  const content = ids.subarray(begin.length, ids.length - end.length);
  const framed = (from: number, to: number): Int32Array =>
    Int32Array.from([...begin, ...content.subarray(from, to), ...end]);
  if (overflow === 'truncate') return { chunks: [framed(0, room)], numDroppedTokens: content.length - room };
  const numChunks = Math.ceil(content.length / room);
  const at = (chunk: number): number => Math.round((chunk * content.length) / numChunks);
  const chunks = Array.from({ length: numChunks }, (_, chunk) => framed(at(chunk), at(chunk + 1)));
  return { chunks, numDroppedTokens: 0 };
}

function startsWith(ids: Int32Array, begin: Int32Array): boolean {
  return begin.every((id, index) => ids[index] === id);
}

function endsWith(ids: Int32Array, end: Int32Array): boolean {
  return end.every((id, index) => ids[ids.length - end.length + index] === id);
}
