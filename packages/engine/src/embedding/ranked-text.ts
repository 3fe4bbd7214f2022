/** Encodes a query with a document as a reranker reads them, within its context. */
import type { RerankerDescription } from '@winnow/models';
import { CapacityError, FormatError, SliceCounter, type Sliced } from '@winnow/tensor';
import type { Tokenizer } from '@winnow/tokenizers';
import { checkTokens } from '../chat/encode-prompt.js';
import { judgeFrame, judgeQuestion } from './judge-prompt.js';
import { charactersPerSlice } from './text.js';

/** The tokens of a query and a document. */
export interface RankedText {
  readonly ids: Int32Array;
  /** Index of the first token of segment 1; the length for a single segment. */
  readonly firstOfSecond: number;
  readonly numDroppedTokens: number;
}

/** A query, or a query with a document, before it is fitted into the context. */
interface Parts {
  /** Kept whole. */
  readonly begin: readonly number[];
  /** Shortened from its end. */
  readonly document: Int32Array;
  readonly end: readonly number[];
  readonly secondType: 0 | 1;
}

export interface RankedTextOptions {
  readonly contextSize: number;
  readonly overflow: 'error' | 'truncate';
  readonly instruction: string;
}

type EncodeDocument = (document: string) => Sliced<Parts>;

/** Encodes documents for one query. */
export class RankedTextEncoder {
  readonly #tokenizer: Tokenizer;
  readonly #description: RerankerDescription;

  /** @throws {FormatError} when the tokenizer does not say how to join two texts, or has segments that the model lacks */
  constructor(tokenizer: Tokenizer, description: RerankerDescription) {
    this.#tokenizer = tokenizer;
    this.#description = description;
    if (description.input === 'judge') return;
    const { pair } = tokenizer;
    const { numTypes } = description;
    if (pair === undefined) throw tokenizerError('a template for pairs of texts, got none');
    if (numTypes > 0 && pair.secondType >= numTypes) {
      throw tokenizerError(`segments below ${numTypes} in the template for pairs, got ${pair.secondType}`);
    }
  }

  /** @throws {CapacityError} for a document that does not fit, unless it is truncated, and for a query that does not fit */
  *encodeAll(query: string, documents: readonly string[], options: RankedTextOptions): Sliced<RankedText[]> {
    const encode = yield* this.#description.input === 'pair'
      ? this.#pairsOf(query)
      : this.#questionsOf(query, options.instruction);
    const work = new SliceCounter(charactersPerSlice);
    const texts: RankedText[] = [];
    for (const [index, document] of documents.entries()) {
      const text = fit(yield* encode(document), `documents[${index}]`, options);
      checkTokens(text.ids, this.#description.config.vocabSize);
      texts.push(text);
      if (work.spend(query.length + document.length)) yield;
    }
    return texts;
  }

  /** Query and document around the separators of the tokenizer. */
  *#pairsOf(query: string): Sliced<EncodeDocument> {
    const { prefix, middle, suffix, secondType } = this.#tokenizer.pair as NonNullable<Tokenizer['pair']>;
    const begin = [...prefix, ...(yield* this.#plain(query)), ...middle];
    const plain = (document: string): Sliced<Int32Array> => this.#plain(document);
    return function* (document): Sliced<Parts> {
      return { begin, document: yield* plain(document), end: suffix, secondType };
    };
  }

  /** One text in the prompt of a judge; the document may share a token with what precedes it. */
  *#questionsOf(query: string, instruction: string): Sliced<EncodeDocument> {
    const question = judgeQuestion(instruction, query);
    const frame = (text: string): Sliced<Int32Array> => this.#tokenizer.encodeSliced(text, { addSpecialTokens: false });
    const [first, last] = [yield* frame(judgeFrame.begin), yield* frame(judgeFrame.end)];
    const plain = (text: string): Sliced<Int32Array> => this.#plain(text);
    const numKept = (yield* plain(question)).length;
    return function* (document): Sliced<Parts> {
      const content = yield* plain(question + document);
      const begin = [...first, ...content.subarray(0, numKept)];
      return { begin, document: content.subarray(numKept), end: [...last], secondType: 0 };
    };
  }

  /** The text comes from strangers, so what looks like a special token in it is encoded as text. */
  #plain(text: string): Sliced<Int32Array> {
    return this.#tokenizer.encodeSliced(text, { addSpecialTokens: false, parseSpecialTokens: false });
  }
}

function fit({ begin, document, end, secondType }: Parts, argument: string, options: RankedTextOptions): RankedText {
  const { contextSize, overflow } = options;
  const room = contextSize - begin.length - end.length;
  const numKept = Math.min(document.length, room);
  const fits = numKept === document.length || (overflow === 'truncate' && room >= 1);
  if (!fits) {
    const isQuery = room < 1;
    throw new CapacityError({
      resource: isQuery ? 'query' : argument,
      needed: begin.length + end.length + (isQuery ? 1 : document.length),
      available: contextSize,
      unit: 'tokens',
      hint: `${isQuery ? '' : 'use overflow truncate, or '}a larger context if the model supports it`,
    });
  }
  const ids = Int32Array.from([...begin, ...document.subarray(0, numKept), ...end]);
  const firstOfSecond = secondType === 1 ? begin.length : ids.length;
  return { ids, firstOfSecond, numDroppedTokens: document.length - numKept };
}

function tokenizerError(expected: string): FormatError {
  return new FormatError({ source: 'tokenizer', field: 'pair', message: `expected ${expected}` });
}
