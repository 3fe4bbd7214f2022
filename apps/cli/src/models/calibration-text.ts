/** Splits calibration text into samples of tokens. */
import { defaultText } from '@winnow/evaluation';
import { UsageError } from '../errors/errors.js';

/** The part of a tokenizer in use. */
type Encode = (text: string, addSpecialTokens: boolean) => ArrayLike<number>;

export interface CalibrationText {
  readonly samples: readonly Int32Array[];
  /** Tokens at the end of the text, held out for perplexity. */
  readonly rest: Int32Array;
}

export interface CalibrationTextOptions {
  readonly numSamples: number;
  readonly sampleTokens: number;
  /** Maximum number of held-out tokens; a tenth of a short text. */
  readonly restTokens: number;
}

/**
 * Samples spread evenly over a text, each with the special tokens of a new text. Fewer when the text is short.
 * @param text default: a built-in one
 * @throws {UsageError} when the text is too short for a few samples
 */
export function cutText(text: string | undefined, encode: Encode, options: CalibrationTextOptions): CalibrationText {
  const { numSamples, sampleTokens, restTokens } = options;
  const wanted = numSamples * sampleTokens + restTokens;
  const tokens = Int32Array.from(encode(text ?? defaultText(wanted, (part) => encode(part, false).length), false));
  const begin = beginning(encode);
  const numRest = Math.min(restTokens, Math.floor(tokens.length / 10));
  const bodyTokens = sampleTokens - begin.length;
  const end = tokens.length - numRest;
  const numFitting = Math.floor(end / Math.max(1, bodyTokens));
  const count = Math.min(numSamples, numFitting);
  if (bodyTokens < 1 || count < 3) {
    const expected = `enough for 3 samples of ${sampleTokens} tokens`;
    throw new UsageError(`--text: expected ${expected}, got ${tokens.length} tokens (see --sample-tokens)`);
  }
  const samples = Array.from({ length: count }, (_, index) => {
    const at = Math.floor((index * (end - bodyTokens)) / Math.max(1, count - 1));
    return Int32Array.from([...begin, ...tokens.subarray(at, at + bodyTokens)]);
  });
  return { samples, rest: Int32Array.from([...begin, ...tokens.subarray(end)]) };
}

/** Pieces of a text to search on, and pieces to check on. */
export interface TextWindows {
  readonly search: readonly Int32Array[];
  readonly heldOut: readonly Int32Array[];
}

/**
 * Pieces of `size` tokens, each with the special tokens of a new text: `count` spread evenly over the first half of a
 * text, and as many over the second half. Fewer when the text is short.
 * @param text default: a built-in one
 * @throws {UsageError} when a half is shorter than a piece
 */
export function cutWindows(text: string | undefined, encode: Encode, size: number, count: number): TextWindows {
  const wanted = 2 * count * size;
  const tokens = Int32Array.from(encode(text ?? defaultText(wanted, (part) => encode(part, false).length), false));
  const begin = beginning(encode);
  const bodyTokens = size - begin.length;
  const half = Math.floor(tokens.length / 2);
  const numPieces = Math.min(count, Math.floor(half / Math.max(1, bodyTokens)));
  if (numPieces < 1) {
    const expected = `two pieces of ${size} tokens, one to search on and one to check on`;
    throw new UsageError(`--text: expected ${expected}, got ${tokens.length} tokens (see --context)`);
  }
  const piecesFrom = (from: number): Int32Array[] =>
    Array.from({ length: numPieces }, (_, index) => {
      const at = from + Math.floor((index * (half - bodyTokens)) / Math.max(1, numPieces - 1));
      return Int32Array.from([...begin, ...tokens.subarray(at, at + bodyTokens)]);
    });
  return { search: piecesFrom(0), heldOut: piecesFrom(half) };
}

/** Paragraphs as separate texts, for embedding models; long ones are truncated. */
export function cutParagraphs(
  text: string | undefined,
  encode: Encode,
  { numSamples, sampleTokens }: CalibrationTextOptions,
): readonly Int32Array[] {
  const whole = text ?? defaultText(numSamples * 32, (part) => encode(part, false).length);
  const paragraphs = paragraphsOf(whole);
  const step = Math.max(1, paragraphs.length / numSamples);
  const chosen = Array.from(
    { length: Math.min(numSamples, paragraphs.length) },
    (_, index) => paragraphs[Math.floor(index * step)] as string,
  );
  if (chosen.length < 3) throw new UsageError(`--text: expected at least 3 paragraphs, got ${chosen.length}`);
  return chosen.map((paragraph) => Int32Array.from(encode(paragraph, true)).slice(0, sampleTokens));
}

/** Text between empty lines. */
export function paragraphsOf(text: string): string[] {
  return text.split(/\n\s*\n/).flatMap((part) => (part.trim() === '' ? [] : [part.trim()]));
}

/** Special tokens that a text begins with. */
function beginning(encode: Encode): number[] {
  const [plain, special] = [Array.from(encode('a', false)), Array.from(encode('a', true))];
  const at = special.findIndex((_, index) => plain.every((token, i) => special[index + i] === token));
  return at > 0 ? special.slice(0, at) : [];
}
