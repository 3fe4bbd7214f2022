/** Encodes texts and token ids as a model reads them, within its context. */
import { SliceCounter, type Sliced } from '@winnow/tensor';
import type { Tokenizer } from '@winnow/tokenizers';
import type { TextKind } from './late-interaction.js';
import {
  charactersPerSlice,
  checkedInput,
  checkedText,
  fitText,
  frameOf,
  type EmbeddingInput,
  type FittedText,
  type Frame,
  type TextOverflow,
} from './text.js';

export interface TextFitterOptions {
  readonly tokenizer: Tokenizer;
  readonly vocabSize: number;
  readonly contextSize: number;
  readonly isLowerCased: boolean;
  /** Fills up every text. Default: none. */
  readonly padding?: { readonly id: number; readonly length: number } | undefined;
}

export class TextFitter {
  readonly #options: TextFitterOptions;
  readonly #frame: Frame;

  constructor(options: TextFitterOptions) {
    this.#options = options;
    this.#frame = frameOf(options.tokenizer);
  }

  *fitAll(inputs: readonly EmbeddingInput[], kind: TextKind, overflow: TextOverflow): Sliced<FittedText[]> {
    const work = new SliceCounter(charactersPerSlice);
    const fitted: FittedText[] = [];
    for (const [index, input] of inputs.entries()) {
      fitted.push(yield* this.#fit(input, kind, `texts[${index}]`, overflow));
      if (work.spend(kind.prefix.length + input.length)) yield;
    }
    return fitted;
  }

  /** @param argument the name of the input in errors */
  *encode(input: EmbeddingInput, kind: TextKind, argument: string): Sliced<Int32Array> {
    const { tokenizer, vocabSize, isLowerCased } = this.#options;
    if (typeof input !== 'string') return checkedInput(input, argument, vocabSize);
    const text = isLowerCased ? (kind.prefix + input).toLowerCase() : kind.prefix + input;
    const ids = yield* tokenizer.encodeSliced(text);
    return checkedText(withMarker(ids, kind.marker, this.#frame.begin.length), argument, vocabSize);
  }

  *#fit(input: EmbeddingInput, kind: TextKind, argument: string, overflow: TextOverflow): Sliced<FittedText> {
    const ids = yield* this.encode(input, kind, argument);
    const { contextSize } = this.#options;
    const { begin, end } = this.#frame;
    const frame = { begin: withMarker(begin, kind.marker, begin.length), end };
    const { chunks, numDroppedTokens } = fitText(ids, argument, kind.maxTokens ?? contextSize, overflow, frame);
    // ids are used unchanged
    const expansion = typeof input === 'string' ? kind.expansion : undefined;
    const padding = expansion ?? this.#options.padding;
    return {
      chunks: padding === undefined ? chunks : chunks.map((chunk) => padded(chunk, padding)),
      numDroppedTokens,
      ...(expansion?.attends === false ? { numAttended: chunks.map(({ length }) => length) } : {}),
      ...(kind.skippedIds === undefined ? {} : { skippedIds: kind.skippedIds }),
    };
  }
}

function withMarker(ids: Int32Array, marker: number | undefined, at: number): Int32Array {
  if (marker === undefined) return ids;
  const all = new Int32Array(ids.length + 1);
  all.set(ids.subarray(0, at));
  all[at] = marker;
  all.set(ids.subarray(at), at + 1);
  return all;
}

function padded(ids: Int32Array, { id, length }: { readonly id: number; readonly length: number }): Int32Array {
  if (ids.length >= length) return ids;
  const all = new Int32Array(length).fill(id);
  all.set(ids);
  return all;
}
