/** Pre-tokenizers of tokenizer.json: they split text into pieces, step by step. */
import type { Pattern } from '../pattern/linear-pattern.js';
import { compilePattern } from '../text/split.js';
import { readPattern } from './pattern.js';
import { UnsupportedComponent, asArray, asObject, jsonError, optionalBoolean, optionalString } from './value.js';
import type { JsonObject } from './value.js';

/** Splits one piece; `atStart` is true when it begins where the whole text begins. */
export type PieceStep = (piece: string, atStart: boolean, emit: (piece: string) => void) => void;

export interface PreTokenizer {
  readonly steps: readonly PieceStep[];
  /** Whether the last step applies the byte-level mapping; the pieces here are still plain text. */
  readonly byteLevel: boolean;
  /** Whether the pieces together hold all of the text. */
  readonly keepsText: boolean;
}

const GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
// The meaning of `\w` in Rust's regular expressions.
const WORD = '\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}';
const PUNCTUATION = '[\\p{P}!-\\/:-@\\[-`\\{-~]';

/** @throws FormatError for malformed fields, UnsupportedComponent for an unknown type */
export function readPreTokenizer(value: unknown, field: string): PreTokenizer {
  const steps: PieceStep[] = [];
  const last = { byteLevel: false, keepsText: true };
  if (value !== null && value !== undefined) addSteps(asObject(value, field), field, steps, last, 0);
  return { steps, ...last };
}

/** Pieces of a text after all steps. */
export function cutPieces(text: string, steps: readonly PieceStep[], atStart: boolean): string[] {
  let pieces = [text];
  for (const step of steps) {
    const next: string[] = [];
    pieces.forEach((piece, index) => step(piece, atStart && index === 0, (part) => part !== '' && next.push(part)));
    pieces = next;
  }
  return pieces;
}

function addSteps(
  config: JsonObject,
  field: string,
  steps: PieceStep[],
  last: { byteLevel: boolean; keepsText: boolean },
  depth: number,
): void {
  if (depth > 8) throw jsonError(field, 'expected at most 8 nested sequences');
  // The byte-level mapping is applied when words are encoded, so it must be the last step.
  if (last.byteLevel) throw new UnsupportedComponent(field, 'a step after ByteLevel');
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
      if (flag('add_prefix_space', true)) steps.push((piece, _, emit) => emit(piece[0] === ' ' ? piece : ` ${piece}`));
      if (flag('use_regex', true)) steps.push(splitStep(compilePattern(GPT2), 'Isolated', false));
      last.byteLevel = true;
      return;
    case 'Split':
      steps.push(
        splitStep(
          readPattern(config['pattern'], `${field}.pattern`),
          readBehavior(config['behavior'], `${field}.behavior`, 'Isolated'),
          flag('invert', false),
        ),
      );
      return;
    case 'Digits':
      steps.push(splitStep(/\p{N}/gu, flag('individual_digits', false) ? 'Isolated' : 'Contiguous', false));
      return;
    case 'Punctuation': {
      const behavior = readBehavior(config['behavior'], `${field}.behavior`, 'Isolated');
      steps.push(splitStep(new RegExp(PUNCTUATION, 'gu'), behavior, false));
      return;
    }
    case 'Whitespace':
      steps.push(splitStep(compilePattern(`[${WORD}]+|[^${WORD}\\s]+`), 'Removed', true));
      return;
    case 'WhitespaceSplit':
      steps.push(splitStep(compilePattern('\\s'), 'Removed', false));
      return;
    case 'BertPreTokenizer':
      steps.push(splitStep(compilePattern('\\s'), 'Removed', false));
      steps.push(splitStep(new RegExp(PUNCTUATION, 'gu'), 'Isolated', false));
      return;
    case 'Metaspace':
      steps.push(readMetaspace(config, field));
      return;
    default:
      throw new UnsupportedComponent(field, config['type']);
  }
}

/** Steps that drop what they match, such as whitespace, or replace it with text that a file may leave empty. */
function mayDropText({ type, behavior }: JsonObject): boolean {
  const keeps = ['Sequence', 'ByteLevel', 'Digits', 'Split', 'Punctuation'];
  return behavior === 'Removed' || !keeps.some((name) => name === type);
}

function readMetaspace(config: JsonObject, field: string): PieceStep {
  const replacement = optionalString(config['replacement'], `${field}.replacement`) ?? '\u2581';
  const legacyPrefix = optionalBoolean(config['add_prefix_space'], `${field}.add_prefix_space`) ?? true;
  const scheme =
    optionalString(config['prepend_scheme'], `${field}.prepend_scheme`) ?? (legacyPrefix ? 'always' : 'never');
  if (!['always', 'first', 'never'].includes(scheme)) {
    throw jsonError(`${field}.prepend_scheme`, `expected always, first or never, found ${JSON.stringify(scheme)}`);
  }
  const split = optionalBoolean(config['split'], `${field}.split`) ?? true;
  return (piece, atStart, emit) => {
    let text = piece.replaceAll(' ', replacement);
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
    }
  };
}

type Behavior = 'Removed' | 'Isolated' | 'MergedWithPrevious' | 'MergedWithNext' | 'Contiguous';
const BEHAVIORS: readonly string[] = ['Removed', 'Isolated', 'MergedWithPrevious', 'MergedWithNext', 'Contiguous'];

function readBehavior(value: unknown, field: string, fallback: Behavior): Behavior {
  const name = optionalString(value, field) ?? fallback;
  if (!BEHAVIORS.includes(name)) {
    throw jsonError(field, `expected one of ${BEHAVIORS.join(', ')}, found ${JSON.stringify(name.slice(0, 60))}`);
  }
  return name as Behavior;
}

function splitStep(pattern: Pattern, behavior: Behavior, invert: boolean): PieceStep {
  return (piece, _, emit) => {
    // Start of the current piece and whether it is a match; matches and gaps alternate, or two matches touch.
    let start = 0;
    let holdsMatch = false;
    let empty = true;
    const part = (from: number, to: number, isMatch: boolean): void => {
      if (from === to) return;
      const joins =
        !empty &&
        (behavior === 'MergedWithPrevious'
          ? isMatch && !holdsMatch
          : behavior === 'MergedWithNext'
            ? !isMatch && holdsMatch
            : behavior === 'Contiguous'
              ? isMatch === holdsMatch
              : false);
      if (!joins && !empty && !(behavior === 'Removed' && holdsMatch)) emit(piece.slice(start, from));
      if (!joins) start = from;
      holdsMatch = isMatch;
      empty = false;
    };
    let done = 0;
    pattern.lastIndex = 0;
    for (let match = pattern.exec(piece); match !== null; match = pattern.exec(piece)) {
      const end = match.index + match[0].length;
      part(done, match.index, invert);
      part(match.index, end, !invert);
      done = end;
      if (match[0] === '') pattern.lastIndex += piece.codePointAt(match.index)! > 0xffff ? 2 : 1;
    }
    part(done, piece.length, invert);
    if (!empty && !(behavior === 'Removed' && holdsMatch)) emit(piece.slice(start));
  };
}
