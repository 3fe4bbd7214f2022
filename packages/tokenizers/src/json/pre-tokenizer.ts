/** Pre-tokenizers of tokenizer.json: they split text into pieces, step by step. */
import type { SliceCounter, Sliced } from '@winnow/tensor';
import { HostPattern, type Pattern } from '../pattern/window-search.js';
import { byteLevelEncode } from '../text/byte-level.js';
import { checkGrowth } from '../text/growth.js';
import { compilePattern, longLength } from '../text/split.js';
import { TextBuilder } from '../text/text-builder.js';
import { replaceSpaces } from '../text/words.js';
import { eachMatch, readPattern, replaceMatches } from './pattern.js';
import { asArray, asNumber, asObject, asString, jsonError } from './value.js';
import { optionalBoolean, optionalString, unsupported } from './value.js';
import type { JsonObject } from './value.js';

/** Splits one piece; `atStart` is true when it begins where the whole text begins. */
export type PieceStep = (
  piece: string,
  atStart: boolean,
  emit: (piece: string) => void,
  work: SliceCounter,
) => Sliced<void>;

export interface PreTokenizer {
  readonly steps: readonly PieceStep[];
  /** Whether a last step, which is not among these, applies the byte-level mapping (`mapBytes`). */
  readonly byteLevel: boolean;
  /** Whether the pieces together hold all of the text. */
  readonly keepsText: boolean;
}

const GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
// The meaning of `\w` in Rust's regular expressions.
const WORD = '\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}';
const PUNCTUATION = '[\\p{P}!-\\/:-@\\[-`\\{-~]';

/** @throws FormatError for malformed fields and for an unknown type */
export function readPreTokenizer(value: unknown, field: string): PreTokenizer {
  const steps: PieceStep[] = [];
  const last = { byteLevel: false, keepsText: true };
  if (value !== null && value !== undefined) addSteps(asObject(value, field), field, steps, last, 0);
  return { steps, ...last };
}

/**
 * Passes on the pieces of a text after all steps, in batches of one slice of work: a list of all pieces would be copied whenever
 * it grows, and scanned by garbage collections.
 */
export class PieceCutter {
  readonly #steps: readonly PieceStep[];
  readonly #length: number;
  readonly #work: SliceCounter;
  /** For each step: whether no piece has reached it so far, and the number of characters that it produced. */
  readonly #isFirst: boolean[];
  readonly #lengths: Float64Array;

  /** @param atStart whether the text begins where the whole text begins */
  constructor(steps: readonly PieceStep[], length: number, atStart: boolean, work: SliceCounter) {
    this.#steps = steps;
    this.#length = length;
    this.#work = work;
    this.#isFirst = steps.map(() => atStart);
    this.#lengths = new Float64Array(steps.length);
  }

  /** @throws CapacityError for pieces that are far longer than the text */
  *cut(piece: string, use: (piece: string) => Sliced<void>, index = 0): Sliced<void> {
    const step = this.#steps[index];
    if (step === undefined) return yield* use(piece);
    const atStart = this.#isFirst[index]!;
    this.#isFirst[index] = false;
    let batch: string[] = [];
    const emit = (part: string): void => {
      checkGrowth((this.#lengths[index]! += part.length), this.#length);
      if (part !== '') batch.push(part);
    };
    const slices = step(piece, atStart, emit, this.#work);
    for (let isDone = false; !isDone;) {
      isDone = slices.next().done === true;
      const parts = batch;
      batch = [];
      for (const part of parts) yield* this.cut(part, use, index + 1);
      if (!isDone || this.#work.spend(1)) yield;
    }
  }
}

function addSteps(
  config: JsonObject,
  field: string,
  steps: PieceStep[],
  last: { byteLevel: boolean; keepsText: boolean },
  depth: number,
): void {
  if (depth > 8) throw jsonError(field, 'expected at most 8 nested sequences');
  if (last.byteLevel && config['type'] !== 'Sequence') {
    steps.push(mapBytes);
    last.byteLevel = false;
  }
  if (mayDropText(config)) last.keepsText = false;
  const flag = (name: string, fallback: boolean): boolean =>
    optionalBoolean(config[name], `${field}.${name}`) ?? fallback;
  switch (config['type']) {
    case 'Sequence':
      asArray(config['pretokenizers'], `${field}.pretokenizers`).forEach((step, index) => {
        const name = `${field}.pretokenizers[${index}]`;
        addSteps(asObject(step, name), name, steps, last, depth + 1);
      });
      return;
    case 'ByteLevel':
      if (flag('add_prefix_space', true)) steps.push(prefixSpace);
      if (flag('use_regex', true)) steps.push(hostStep(compilePattern(GPT2), 'Isolated', false));
      last.byteLevel = true;
      return;
    default:
      steps.push(...readSteps(config, field));
  }
}

/** The steps of a pre-tokenizer that contains no others. */
function readSteps(config: JsonObject, field: string): readonly PieceStep[] {
  const behavior = (): Behavior => readBehavior(config['behavior'], `${field}.behavior`, 'Isolated');
  const flag = (name: string): boolean => optionalBoolean(config[name], `${field}.${name}`) ?? false;
  const pattern = (): Pattern => readPattern(config['pattern'], `${field}.pattern`);
  switch (config['type']) {
    case 'Split':
      return [splitStep(pattern(), behavior(), flag('invert'))];
    case 'Digits':
      return [hostStep(/\p{N}/gu, flag('individual_digits') ? 'Isolated' : 'Contiguous', false)];
    case 'Punctuation':
      return [hostStep(new RegExp(PUNCTUATION, 'gu'), behavior(), false)];
    case 'Whitespace':
      return [hostStep(compilePattern(`[${WORD}]+|[^${WORD}\\s]+`), 'Removed', true)];
    case 'WhitespaceSplit':
      return [hostStep(compilePattern('\\s'), 'Removed', false)];
    case 'BertPreTokenizer':
      return [
        hostStep(compilePattern('\\s'), 'Removed', false),
        hostStep(new RegExp(PUNCTUATION, 'gu'), 'Isolated', false),
      ];
    case 'Metaspace':
      return [readMetaspace(config, field)];
    case 'FixedLength':
      return [readFixedLength(config['length'], `${field}.length`)];
    case 'Replace':
      return [replaceStep(pattern(), asString(config['content'], `${field}.content`))];
    default:
      throw unsupported(field, config['type']);
  }
}

/** Steps that drop what they match, such as whitespace, or replace it with text that a file may leave empty. */
function mayDropText({ type, behavior }: JsonObject): boolean {
  const keeps = ['Sequence', 'ByteLevel', 'Digits', 'Split', 'Punctuation', 'FixedLength'];
  return behavior === 'Removed' || !keeps.some((name) => name === type);
}

/** Characters that may replace a space; one in all known files. */
const maxMark = 16;

function readMetaspace(config: JsonObject, field: string): PieceStep {
  const replacement = optionalString(config['replacement'], `${field}.replacement`) ?? '\u2581';
  if (replacement.length > maxMark) {
    throw jsonError(`${field}.replacement`, `expected at most ${maxMark} characters, found ${replacement.length}`);
  }
  const legacyPrefix = optionalBoolean(config['add_prefix_space'], `${field}.add_prefix_space`) ?? true;
  const scheme =
    optionalString(config['prepend_scheme'], `${field}.prepend_scheme`) ?? (legacyPrefix ? 'always' : 'never');
  if (!['always', 'first', 'never'].includes(scheme)) {
    throw jsonError(`${field}.prepend_scheme`, `expected always, first or never, found ${JSON.stringify(scheme)}`);
  }
  const split = optionalBoolean(config['split'], `${field}.split`) ?? true;
  return function* (piece, atStart, emit, work) {
    let text = yield* replaceSpaces(piece, replacement, work);
    if (!text.startsWith(replacement) && (scheme === 'always' || (scheme === 'first' && atStart))) {
      text = replacement + text;
    }
    if (!split) return emit(text);
    let start = 0;
    while (start < text.length) {
      const next = text.indexOf(replacement, start + 1);
      const end = next < 0 ? text.length : next;
      emit(text.slice(start, end));
      start = end;
      if (work.spend(1)) yield;
    }
  };
}

/** Splits into pieces of a fixed number of characters. */
function readFixedLength(value: unknown, field: string): PieceStep {
  const length = value === undefined ? 5 : asNumber(value, field);
  if (!Number.isSafeInteger(length) || length < 1) {
    throw jsonError(field, `expected a positive integer, found ${length}`);
  }
  return function* (piece, _, emit, work) {
    for (let start = 0, at = 0, count = 0; at < piece.length;) {
      at += piece.codePointAt(at)! > 0xffff ? 2 : 1;
      const isEnd = ++count === length || at === piece.length;
      if (!isEnd && count % longLength !== 0) continue;
      if (work.spend(Math.min(count, longLength))) yield;
      if (!isEnd) continue;
      emit(piece.slice(start, at));
      [start, count] = [at, 0];
    }
  };
}

/** Replaces without splitting; a step of `@huggingface/transformers`. */
function replaceStep(pattern: Pattern, content: string): PieceStep {
  return function* (piece, _, emit, work) {
    emit(yield* replaceMatches(piece, pattern, content, work));
  };
}

/** The byte-level spelling of a piece, for models that know only characters. */
export const mapBytes: PieceStep = function* (piece, _, emit, work) {
  const out = new TextBuilder();
  for (let start = 0; start < piece.length;) {
    let end = Math.min(start + longLength, piece.length);
    if ((piece.charCodeAt(end) & 0xfc00) === 0xdc00) end++; // the second half of a character
    out.add(byteLevelEncode(piece.slice(start, end)));
    if (work.spend(end - start)) yield;
    start = end;
  }
  emit(out.take());
};

type Behavior = 'Removed' | 'Isolated' | 'MergedWithPrevious' | 'MergedWithNext' | 'Contiguous';
const BEHAVIORS: readonly string[] = ['Removed', 'Isolated', 'MergedWithPrevious', 'MergedWithNext', 'Contiguous'];

function readBehavior(value: unknown, field: string, fallback: Behavior): Behavior {
  const name = optionalString(value, field) ?? fallback;
  if (!BEHAVIORS.includes(name)) {
    throw jsonError(field, `expected one of ${BEHAVIORS.join(', ')}, found ${JSON.stringify(name.slice(0, 60))}`);
  }
  return name as Behavior;
}

const prefixSpace: PieceStep = function* (piece, _, emit, work) {
  if (work.spend(1)) yield;
  emit(piece[0] === ' ' ? piece : ` ${piece}`);
};

function hostStep(pattern: RegExp, behavior: Behavior, invert: boolean): PieceStep {
  return splitStep(new HostPattern(pattern), behavior, invert);
}

function splitStep(pattern: Pattern, behavior: Behavior, invert: boolean): PieceStep {
  return function* (piece, _, emit, work) {
    const parts = new PartJoiner(piece, behavior, emit);
    let done = 0;
    yield* eachMatch(piece, pattern, work, (start, end) => {
      parts.add(done, start, invert);
      parts.add(start, end, !invert);
      done = end;
    });
    parts.add(done, piece.length, invert);
    parts.end();
  };
}

/** Joins matches and the gaps between them according to a behavior. They alternate, or two matches touch. */
class PartJoiner {
  readonly #piece: string;
  readonly #behavior: Behavior;
  readonly #emit: (piece: string) => void;
  /** Start of the current part, and whether it is a match. */
  #start = 0;
  #holdsMatch = false;
  #isEmpty = true;

  constructor(piece: string, behavior: Behavior, emit: (piece: string) => void) {
    this.#piece = piece;
    this.#behavior = behavior;
    this.#emit = emit;
  }

  add(from: number, to: number, isMatch: boolean): void {
    if (from === to) return;
    const joins = !this.#isEmpty && this.#joins(isMatch);
    if (!joins) {
      this.#emitUntil(from);
      this.#start = from;
    }
    this.#holdsMatch = isMatch;
    this.#isEmpty = false;
  }

  end(): void {
    this.#emitUntil(this.#piece.length);
  }

  #joins(isMatch: boolean): boolean {
    switch (this.#behavior) {
      case 'MergedWithPrevious':
        return isMatch && !this.#holdsMatch;
      case 'MergedWithNext':
        return !isMatch && this.#holdsMatch;
      case 'Contiguous':
        return isMatch === this.#holdsMatch;
      default:
        return false;
    }
  }

  #emitUntil(end: number): void {
    if (this.#isEmpty || (this.#behavior === 'Removed' && this.#holdsMatch)) return;
    this.#emit(this.#piece.slice(this.#start, end));
  }
}
