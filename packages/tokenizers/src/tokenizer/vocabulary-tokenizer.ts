/** The only implementation of `Tokenizer`: a vocabulary, a text encoder, and the special tokens around a text. */
import { ArgumentError, finish, type SliceCounter, type Sliced } from '@winnow/tensor';
import { wordTooLong } from '../pattern/window-search.js';
import { IdList } from '../tables/id-list.js';
import { newSliceCounter } from '../text/split.js';
import type {
  DecodeOptions,
  Detokenizer,
  DetokenizerOptions,
  EncodeOptions,
  PairTemplate,
  Tokenizer,
} from './tokenizer.js';

/** Encodes well-formed text, without BOS and EOS. */
export interface TextEncoderModel {
  encode(text: string, parseSpecialTokens: boolean, ids: IdList, work: SliceCounter): Sliced<void>;
}

/** Ids with a role; each is optional. */
export interface SpecialIds {
  readonly bosId: number | undefined;
  readonly eosId: number | undefined;
  readonly unkId: number | undefined;
  readonly padId: number | undefined;
  readonly sepId: number | undefined;
  readonly clsId: number | undefined;
  readonly maskId: number | undefined;
}

/** Parts of a `VocabularyTokenizer`. */
export interface TokenizerParts {
  readonly kind: Tokenizer['kind'];
  /** Text of each id; empty for an id without an entry (a gap in tokenizer.json). */
  readonly texts: readonly string[];
  readonly idByText: ReadonlyMap<string, number>;
  /** Bytes that an id adds to a text. Called once per id. */
  readonly bytesOf: (id: number) => Uint8Array;
  /** Nonzero: control or unknown token. */
  readonly special: Uint8Array;
  readonly ids: SpecialIds;
  readonly eosIds: readonly number[];
  readonly maxTokenBytes?: number | undefined;
  /** Ids that `addSpecialTokens` puts before and after a text. */
  readonly prefix: readonly number[];
  readonly suffix: readonly number[];
  readonly pair?: PairTemplate | undefined;
  /** The leading space of a decoded text was added by the encoding and is removed. */
  readonly stripLeadingSpace: boolean;
  readonly encoder: TextEncoderModel;
}

const SPACE = 0x20;

/** See `Tokenizer`. */
export class VocabularyTokenizer implements Tokenizer {
  readonly kind: Tokenizer['kind'];
  readonly vocabSize: number;
  readonly bosId: number | undefined;
  readonly eosId: number | undefined;
  readonly eosIds: readonly number[];
  readonly unkId: number | undefined;
  readonly padId: number | undefined;
  readonly sepId: number | undefined;
  readonly clsId: number | undefined;
  readonly maskId: number | undefined;
  readonly maxTokenBytes: number | undefined;
  readonly addBos: boolean;
  readonly addEos: boolean;
  readonly pair: PairTemplate | undefined;
  readonly #parts: TokenizerParts;
  // Bytes of all tokens, concatenated: those of `id` are [#offsets[id], #offsets[id + 1]). Built on first use.
  #bytes: Uint8Array | undefined;
  #offsets: Uint32Array = new Uint32Array(0);

  constructor(parts: TokenizerParts) {
    this.#parts = parts;
    this.kind = parts.kind;
    this.vocabSize = parts.texts.length;
    this.bosId = parts.ids.bosId;
    this.eosId = parts.ids.eosId;
    this.eosIds = parts.eosIds;
    this.unkId = parts.ids.unkId;
    this.padId = parts.ids.padId;
    this.sepId = parts.ids.sepId;
    this.clsId = parts.ids.clsId;
    this.maskId = parts.ids.maskId;
    this.maxTokenBytes = parts.maxTokenBytes;
    this.addBos = parts.prefix.length > 0;
    this.addEos = parts.suffix.length > 0;
    this.pair = parts.pair;
  }

  encode(text: string, options: EncodeOptions = {}): Int32Array {
    return finish(this.encodeSliced(text, options));
  }

  *encodeSliced(text: string, options: EncodeOptions = {}): Sliced<Int32Array> {
    const { addSpecialTokens = true, parseSpecialTokens = true } = options;
    const ids = new IdList(16 + text.length); // unused memory is never touched
    if (addSpecialTokens) ids.pushAll(this.#parts.prefix);
    yield* this.#encodeText(text.toWellFormed(), parseSpecialTokens, ids);
    if (addSpecialTokens) ids.pushAll(this.#parts.suffix);
    return ids.toArray();
  }

  // Regular expression engines keep a stack entry per character of a run (V8: 64 MiB in total), so a single word of
  // several million letters can exhaust it. Every pre-tokenizer is tested with words of 2^20 characters.
  *#encodeText(text: string, parseSpecialTokens: boolean, ids: IdList): Sliced<void> {
    try {
      yield* this.#parts.encoder.encode(text, parseSpecialTokens, ids, newSliceCounter());
    } catch (error) {
      throw error instanceof RangeError ? wordTooLong(text.length) : error;
    }
  }

  decode(ids: ArrayLike<number>, options: DecodeOptions = {}): string {
    const state = new StartState(this.#parts.stripLeadingSpace);
    const bytes = this.#tokenBytes();
    let length = 0;
    for (let index = 0; index < ids.length; index++) {
      const id = this.#checkId('ids', ids[index]!);
      length += this.#offsets[id + 1]! - this.#offsets[id]!;
    }
    const out = new Uint8Array(length);
    let at = 0;
    for (let index = 0; index < ids.length; index++) {
      const id = ids[index]!;
      const special = this.#parts.special[id] !== 0;
      if (special && options.skipSpecialTokens === true) continue;
      const end = this.#offsets[id + 1]!;
      let begin = this.#offsets[id]!;
      if (state.skipsSpace(special, begin < end && bytes[begin] === SPACE)) begin++;
      out.set(bytes.subarray(begin, end), at);
      at += end - begin;
    }
    return new TextDecoder('utf-8', { ignoreBOM: true }).decode(out.subarray(0, at));
  }

  tokenBytes(id: number): Uint8Array {
    this.#checkId('id', id);
    return this.#tokenBytes().slice(this.#offsets[id]!, this.#offsets[id + 1]!);
  }

  tokenText(id: number): string {
    return this.#parts.texts[this.#checkId('id', id)]!;
  }

  isSpecial(id: number): boolean {
    return this.#parts.special[id] === 1;
  }

  idOf(text: string): number | undefined {
    return this.#parts.idByText.get(text);
  }

  createDetokenizer(options: DetokenizerOptions = {}): Detokenizer {
    const skipSpecial = options.skipSpecialTokens === true;
    const strip = this.#parts.stripLeadingSpace && options.continuation !== true;
    return new StreamDetokenizer(strip, (id, state) => {
      this.#checkId('id', id);
      const bytes = this.#tokenBytes();
      const special = this.#parts.special[id] !== 0;
      const end = this.#offsets[id + 1]!;
      if (special && skipSpecial) return bytes.subarray(end, end);
      let begin = this.#offsets[id]!;
      if (state.skipsSpace(special, begin < end && bytes[begin] === SPACE)) begin++;
      return bytes.subarray(begin, end);
    });
  }

  #checkId(argument: string, id: number): number {
    if (!Number.isInteger(id) || id < 0 || id >= this.vocabSize) {
      throw new ArgumentError({ argument, expected: `a token id below ${this.vocabSize}`, actual: String(id) });
    }
    return id;
  }

  #tokenBytes(): Uint8Array {
    if (this.#bytes !== undefined) return this.#bytes;
    const pieces: Uint8Array[] = [];
    const offsets = new Uint32Array(this.vocabSize + 1);
    let length = 0;
    for (let id = 0; id < this.vocabSize; id++) {
      const piece = this.#parts.bytesOf(id);
      pieces.push(piece);
      length += piece.length;
      offsets[id + 1] = length;
    }
    const bytes = new Uint8Array(length);
    pieces.forEach((piece, id) => bytes.set(piece, offsets[id]!));
    this.#offsets = offsets;
    this.#bytes = bytes;
    return bytes;
  }
}

/** Whether no text has been emitted yet; special tokens do not count. */
class StartState {
  #atStart: boolean;

  constructor(strip: boolean) {
    this.#atStart = strip;
  }

  skipsSpace(special: boolean, startsWithSpace: boolean): boolean {
    if (!this.#atStart || special) return false;
    this.#atStart = false;
    return startsWithSpace;
  }
}

/** Decodes ids one by one; characters may span several of them. */
class StreamDetokenizer implements Detokenizer {
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  readonly #strip: boolean;
  readonly #bytesOf: (id: number, state: StartState) => Uint8Array;
  #state: StartState;

  /** @param bytesOf the bytes that an id adds to the text */
  constructor(strip: boolean, bytesOf: (id: number, state: StartState) => Uint8Array) {
    this.#strip = strip;
    this.#bytesOf = bytesOf;
    this.#state = new StartState(strip);
  }

  push(id: number): string {
    return this.#decoder.decode(this.#bytesOf(id, this.#state), { stream: true });
  }

  flush(): string {
    this.#state = new StartState(this.#strip);
    return this.#decoder.decode();
  }
}

/** UTF-8 of a text; lone surrogates become U+FFFD. */
export function utf8(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}
