/** A limit on the tokens between two marks, such as those of reasoning, kept by forcing the mark that ends them. */
import type { TokenMask } from '@winnow/grammar';
import { ArgumentError, checkOptions, type OptionNames } from '@winnow/tensor';
import type { Tokenizer } from '@winnow/tokenizers';
import type { SpanLimit } from '../chat/span-limit.js';
import type { Constraint } from './constraint.js';

const spanLimitNames: OptionNames<SpanLimit> = { begin: true, end: true, maxTokens: true };

/** @throws {ArgumentError} for values that no span has */
export function checkSpanLimit(limit: SpanLimit): SpanLimit {
  checkOptions(limit, spanLimitNames);
  const { begin, end, maxTokens } = limit;
  if (end === '' || begin === '') {
    throw new ArgumentError({
      argument: 'spanLimit',
      expected: 'marks that are not empty',
      actual: JSON.stringify(limit),
    });
  }
  if (Number.isSafeInteger(maxTokens) && maxTokens >= 0) return limit;
  throw new ArgumentError({
    argument: 'spanLimit.maxTokens',
    expected: 'an integer from 0',
    actual: String(maxTokens),
  });
}

/** Adds the limit to what a grammar, if there is one, allows. The grammar has to allow the end of the span. */
export class SpanConstraint implements Constraint {
  readonly #inner: Constraint | undefined;
  readonly #limit: SpanLimit;
  readonly #textOf: (tokenId: number) => string;
  readonly #endTokens: readonly number[];
  readonly #all: TokenMask;
  #place: 'before' | 'inside' | 'after';
  /** The end of the text, in which a mark may have begun. */
  #tail = '';
  #numTokens = 0;
  /** Number of tokens of the end that have been forced. */
  #numForced = 0;

  /** @param textOf text of a token as it appears in the output */
  constructor(
    limit: SpanLimit,
    inner: Constraint | undefined,
    { tokenizer, vocabSize, textOf }: { tokenizer: Tokenizer; vocabSize: number; textOf: (tokenId: number) => string },
  ) {
    this.#limit = limit;
    this.#inner = inner;
    this.#textOf = textOf;
    this.#endTokens = [...tokenizer.encode(limit.end, { addSpecialTokens: false })];
    this.#all = allTokens(vocabSize);
    this.#place = limit.begin === undefined ? 'inside' : 'before';
  }

  mask(): TokenMask {
    const forced = this.#forced();
    if (forced === undefined) return this.#inner?.mask() ?? this.#all;
    const bits = new Uint32Array(this.#all.bits.length);
    bits[forced >> 5] = 1 << (forced & 31);
    return { bits, numTokens: 1 };
  }

  prepare(): void {
    if (this.#forced() === undefined) this.#inner?.prepare();
  }

  accept(tokenId: number): void {
    const isForced = this.#forced() !== undefined;
    this.#inner?.accept(tokenId);
    if (this.#place === 'after') return;
    if (isForced && ++this.#numForced === this.#endTokens.length) this.#place = 'after';
    if (isForced) return;
    if (this.#place === 'inside') this.#numTokens++;
    const mark = this.#place === 'before' ? (this.#limit.begin as string) : this.#limit.end;
    this.#tail += this.#textOf(tokenId);
    const at = this.#tail.indexOf(mark);
    if (at === -1) {
      this.#tail = this.#tail.slice(-mark.length);
      return;
    }
    this.#tail = this.#tail.slice(at + mark.length);
    this.#place = this.#place === 'before' ? 'inside' : 'after';
  }

  get isSatisfied(): boolean {
    return this.#inner?.isSatisfied !== false;
  }

  get isComplete(): boolean {
    return this.#inner?.isComplete === true;
  }

  #forced(): number | undefined {
    const isReached = this.#place === 'inside' && this.#numTokens >= this.#limit.maxTokens;
    return isReached ? this.#endTokens[this.#numForced] : undefined;
  }
}

function allTokens(vocabSize: number): TokenMask {
  const bits = new Uint32Array(Math.ceil(vocabSize / 32)).fill(0xffffffff);
  const numLast = vocabSize & 31;
  if (numLast > 0) bits[bits.length - 1] = 2 ** numLast - 1;
  return { bits, numTokens: vocabSize };
}
