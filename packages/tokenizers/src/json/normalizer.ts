/** Normalizers of tokenizer.json, with the results of Hugging Face tokenizers. */
import { bytesOfBase64, CapacityError, type SliceCounter, type Sliced } from '@winnow/tensor';
import { charBit, charClass } from '../text/char-class.js';
import { Charsmap } from '../text/charsmap.js';
import type { CharsmapMatch } from '../text/charsmap.js';
import { checkGrowth } from '../text/growth.js';
import { longLength } from '../text/split.js';
import { TextBuilder } from '../text/text-builder.js';
import { readPattern, replaceMatches } from './pattern.js';
import type { JsonObject } from './value.js';
import { asArray, asObject, asString, jsonError, optionalBoolean, unsupported } from './value.js';

/** Maps text to normalized text. */
export type Normalizer = (text: string, work: SliceCounter) => Sliced<string>;

/** @throws FormatError for malformed fields and for an unknown type */
export function readNormalizer(value: unknown, field: string): Normalizer | undefined {
  if (value === null || value === undefined) return undefined;
  return inSequence(readSteps(value, field, 0));
}

function readSteps(value: unknown, field: string, depth: number): Normalizer[] {
  if (value === null || value === undefined) return [];
  if (depth > 8) throw jsonError(field, 'expected at most 8 nested sequences');
  const config = asObject(value, field);
  if (config['type'] === 'Sequence') {
    const steps = asArray(config['normalizers'], `${field}.normalizers`);
    return steps.flatMap((step, index) => readSteps(step, `${field}.normalizers[${index}]`, depth + 1));
  }
  const step = readStep(config, field);
  return step === undefined ? [] : [step];
}

function readStep(config: JsonObject, field: string): Normalizer | undefined {
  switch (config['type']) {
    case 'NFC':
    case 'NFD':
    case 'NFKC':
    case 'NFKD': {
      const form = config['type'];
      return normalForm(form);
    }
    case 'Lowercase':
      return byCharacter(lowercase);
    case 'StripAccents':
      return byCharacter((piece) => piece.replace(/\p{M}+/gu, ''));
    case 'Strip': {
      const left = optionalBoolean(config['strip_left'], `${field}.strip_left`) ?? true;
      const right = optionalBoolean(config['strip_right'], `${field}.strip_right`) ?? true;
      return (text, work) => strip(text, left, right, work);
    }
    case 'Prepend': {
      const prefix = asString(config['prepend'], `${field}.prepend`);
      return function* (text, work) {
        if (work.spend(1)) yield;
        return text === '' ? text : prefix + text;
      };
    }
    case 'Replace': {
      const pattern = readPattern(config['pattern'], `${field}.pattern`);
      const content = asString(config['content'], `${field}.content`);
      return (text, work) => replaceMatches(text, pattern, content, work);
    }
    case 'BertNormalizer':
      return bertNormalizer(
        optionalBoolean(config['clean_text'], `${field}.clean_text`) ?? true,
        optionalBoolean(config['handle_chinese_chars'], `${field}.handle_chinese_chars`) ?? true,
        optionalBoolean(config['strip_accents'], `${field}.strip_accents`),
        optionalBoolean(config['lowercase'], `${field}.lowercase`) ?? true,
      );
    case 'Precompiled':
      return precompiled(config['precompiled_charsmap'], `${field}.precompiled_charsmap`);
    default:
      throw unsupported(field, config['type']);
  }
}

/** Characters of text pieces that are normalized at once. */
const pieceLength = 2 * longLength;
/** Maximum number of combining marks after one character: the host sorts them in quadratic time. */
const maxMarks = 1024;

function inSequence(steps: readonly Normalizer[]): Normalizer {
  return function* (text, work) {
    let current = text;
    for (const step of steps) {
      current = yield* step(current, work);
      checkGrowth(current.length, text.length);
    }
    return current;
  };
}

/** Applies a function to pieces of a text. @param canBegin whether a piece may begin with this code unit */
function inPieces(map: (piece: string) => string, canBegin: (unit: number) => boolean): Normalizer {
  return function* (text, work) {
    if (text.length <= pieceLength) return map(text);
    const out = new TextBuilder();
    for (let start = 0; start < text.length;) {
      let end = start + pieceLength;
      while (end < text.length && !canBegin(text.charCodeAt(end))) {
        end++;
        if (end % longLength === 0 && work.spend(longLength)) yield;
      }
      const piece = text.slice(start, end);
      out.add(map(piece));
      if (work.spend(piece.length)) yield;
      start = end;
    }
    return out.take();
  };
}

/** A normalizer that maps each character independently. */
function byCharacter(map: (piece: string) => string): Normalizer {
  return inPieces(map, (unit) => (unit & 0xfc00) !== 0xdc00);
}

/**
 * Latin, Greek and Cyrillic letters, ideographs, kana, Hangul syllables and emoji, none of which composes with what is
 * before.
 */
function isIndependent(unit: number): boolean {
  return (
    unit < 0x300 ||
    (unit >= 0x370 && unit < 0x483) ||
    (unit >= 0x3041 && unit < 0x3097) ||
    (unit >= 0x30a1 && unit < 0x30fb) ||
    (unit >= 0x3400 && unit < 0xa000) ||
    (unit >= 0xac00 && unit < 0xd7a4) ||
    (unit >= 0xd83c && unit < 0xd83f) ||
    (unit >= 0xd840 && unit < 0xd888)
  );
}

/** The form throws CapacityError for a character with thousands of marks. */
function normalForm(form: 'NFC' | 'NFD' | 'NFKC' | 'NFKD'): Normalizer {
  const normalize = inPieces((piece) => piece.normalize(form), isIndependent);
  return function* (text, work) {
    yield* checkMarks(text, work);
    return yield* normalize(text, work);
  };
}

/** @throws CapacityError */
function* checkMarks(text: string, work: SliceCounter): Sliced<void> {
  if (text.length <= maxMarks) return;
  for (const [marks] of text.matchAll(/\p{M}+/gu)) {
    if (work.spend(1)) yield;
    if (marks.length <= maxMarks) continue;
    const resource = 'tokenizer: a character with combining marks';
    throw new CapacityError({ resource, needed: marks.length, available: maxMarks, unit: 'marks' });
  }
}

/** Lowercases character by character, so sigma has no final form. */
function lowercase(text: string): string {
  return text.replaceAll('\u03a3', '\u03c3').toLowerCase();
}

function* strip(text: string, left: boolean, right: boolean, work: SliceCounter): Sliced<string> {
  let start = 0;
  let end = text.length;
  const isSpace = (at: number): boolean => (charClass(text.charCodeAt(at)) & charBit.whitespace) !== 0;
  for (; left && start < end && isSpace(start); start++) if (work.spend(1)) yield;
  for (; right && end > start && isSpace(end - 1); end--) if (work.spend(1)) yield;
  return text.slice(start, end);
}

function bertNormalizer(
  clean: boolean,
  separateChinese: boolean,
  stripAccents: boolean | undefined,
  toLower: boolean,
): Normalizer {
  const steps: Normalizer[] = [];
  if (clean || separateChinese) steps.push(byCharacter((text) => cleanText(text, clean, separateChinese)));
  if (stripAccents ?? toLower)
    steps.push(
      normalForm('NFD'),
      byCharacter((text) => text.replace(/\p{Mn}+/gu, '')),
    );
  if (toLower) steps.push(byCharacter(lowercase));
  return inSequence(steps);
}

function cleanText(text: string, clean: boolean, separateChinese: boolean): string {
  const out: string[] = [];
  for (const character of text) {
    const codePoint = character.codePointAt(0)!;
    const bits = charClass(codePoint);
    if (clean) {
      const plainSpace = codePoint === 0x20 || codePoint === 0x09 || codePoint === 0x0a || codePoint === 0x0d;
      // Other whitespace among the control characters (U+000B, U+0085) is dropped with them.
      if (!plainSpace && (codePoint === 0 || codePoint === 0xfffd || (bits & charBit.control) !== 0)) continue;
      if ((bits & charBit.whitespace) !== 0) {
        out.push(' ');
        continue;
      }
    }
    out.push(separateChinese && (bits & charBit.chinese) !== 0 ? ` ${character} ` : character);
  }
  return out.join('');
}

/** Graphemes longer than this many bytes are mapped character by character. Source: spm_precompiled 0.1. */
const MAX_GRAPHEME_BYTES = 5;

/**
 * Applies SentencePiece's table as Hugging Face does: to a whole grapheme if it matches, else to each of its
 * characters.
 */
function precompiled(value: unknown, field: string): Normalizer | undefined {
  if (value === null || value === undefined || value === '') return undefined;
  const charsmap = new Charsmap(decodeBase64(asString(value, field), field), (message) => jsonError(field, message));
  const segmenter = new Intl.Segmenter('und', { granularity: 'grapheme' });
  const encoder = new TextEncoder();
  const decoder = new TextDecoder();
  const match: CharsmapMatch = { length: 0, start: 0, end: 0 };
  const known = new Map<string, string>();
  const lookUp = (part: string): string | undefined => {
    const bytes = encoder.encode(part);
    charsmap.match(bytes, 0, bytes.length, false, match);
    return match.length === 0 ? undefined : decoder.decode(charsmap.bytes.subarray(match.start, match.end));
  };
  const mapGrapheme = (grapheme: string): string => {
    let mapped = known.get(grapheme);
    if (mapped === undefined) {
      const whole = encoder.encode(grapheme).length <= MAX_GRAPHEME_BYTES ? lookUp(grapheme) : undefined;
      mapped = whole ?? Array.from(grapheme, (character) => lookUp(character) ?? character).join('');
      if (known.size >= 1 << 16) known.clear();
      known.set(grapheme, mapped);
    }
    return mapped;
  };
  return function* (text, work) {
    const out = new TextBuilder();
    let length = 0;
    const add = (mapped: string): void => {
      checkGrowth((length += mapped.length), text.length);
      out.add(mapped);
    };
    for (let start = 0; start < text.length;) {
      if (work.spend(1)) yield;
      if (isAlone(text, start)) {
        add(mapGrapheme(text[start]!));
        start++;
        continue;
      }
      let end = start + 1;
      for (; end < text.length && !isAlone(text, end); end++) if (work.spend(1)) yield;
      for (const { segment } of segmenter.segment(text.slice(start, end))) {
        add(mapGrapheme(segment));
        if (work.spend(4)) yield;
      }
      start = end;
    }
    return out.take();
  };
}

// An ASCII character before another one is a grapheme, except CR LF; ordinary text skips the segmenter.
function isAlone(text: string, at: number): boolean {
  const unit = text.charCodeAt(at);
  if (unit >= 0x80) return false;
  if (unit === 0x0a && at > 0 && text.charCodeAt(at - 1) === 0x0d) return false;
  if (at + 1 === text.length) return true;
  const next = text.charCodeAt(at + 1);
  return next < 0x80 && !(unit === 0x0d && next === 0x0a);
}

function decodeBase64(text: string, field: string): Uint8Array {
  try {
    return bytesOfBase64(text);
  } catch (cause) {
    throw jsonError(field, `expected base64: ${String(cause)}`);
  }
}
