/** Strict parsing of flag values: the whole string must be valid, and errors name the flag. */
import type { KvDTypes } from '@winnow/engine';
import { dtypes, isDType, type DType } from '@winnow/tensor';
import { UsageError } from '../errors/errors.js';

export function refuse(flag: string, expected: string, actual: string): UsageError {
  return new UsageError(`${flag}: expected ${expected}, got '${actual}'`);
}

export interface NumberRule {
  readonly integer?: boolean;
  /** The expected value, for the message. */
  readonly expected: string;
  readonly isValid: (value: number) => boolean;
}

const integerPattern = /^[+-]?\d+$/;
const numberPattern = /^[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?$/i;

export function parseNumber(flag: string, text: string, rule: NumberRule): number {
  const value = (rule.integer ? integerPattern : numberPattern).test(text) ? Number(text) : Number.NaN;
  const fits = rule.integer ? Number.isSafeInteger(value) : Number.isFinite(value);
  if (!fits || !rule.isValid(value)) throw refuse(flag, rule.expected, text);
  return value;
}

/** `f16` for both, or `q8_0,q4_0` for keys and values. */
export function parseKvDType(flag: string, text: string): DType | KvDTypes {
  const [keys = '', values = keys, ...more] = text.split(',').map((part) => part.trim());
  if (more.length === 0 && isDType(keys) && isDType(values)) return keys === values ? keys : { keys, values };
  throw refuse(flag, 'a data type such as f32, f16 or q8_0, or two for keys and values such as q8_0,q4_0', text);
}

/** How tokens are drafted. The engine checks the policy of `self=POLICY`. */
export function parseSpeculative(flag: string, text: string): string {
  if (/^(off|lookup|auto|(self|draft)=.+)$/.test(text)) return text;
  throw refuse(flag, 'off, lookup, auto, self=POLICY or draft=MODEL', text);
}

/** A data type or a recipe of several, ignoring case: `q4_k`. */
export function parseQuantizeType(flag: string, text: string): DType | 'q4_K_M' {
  const found = ([...dtypes, 'q4_K_M'] as const).find((name) => name.toLowerCase() === text.toLowerCase());
  if (found === undefined) throw refuse(flag, 'a data type such as q8_0, q4_K or f16, or q4_K_M', text);
  return found;
}

const bytesPerUnit: Readonly<Record<string, number>> = {
  '': 1,
  b: 1,
  kb: 1e3,
  mb: 1e6,
  gb: 1e9,
  tb: 1e12,
  k: 2 ** 10,
  m: 2 ** 20,
  g: 2 ** 30,
  t: 2 ** 40,
  kib: 2 ** 10,
  mib: 2 ** 20,
  gib: 2 ** 30,
  tib: 2 ** 40,
};

/** `500000`, `2GB` (10^9), `2GiB` or `2G` (2^30), `1.5GB`. */
export function parseBytes(flag: string, text: string): number {
  const expected = 'a size such as 500MB, 2GB or 2GiB';
  const match = /^(\d+(?:\.\d+)?)\s*([a-z]*)$/i.exec(text);
  const unit = bytesPerUnit[(match?.[2] ?? '').toLowerCase()];
  if (!match || unit === undefined) throw refuse(flag, expected, text);
  const value = Math.floor(Number(match[1]) * unit);
  if (!Number.isSafeInteger(value) || value < 1) throw refuse(flag, expected, text);
  return value;
}

/** Token ids from `1,2,3`, `1 2 3`, `[1, 2, 3]`, or one per line. */
export function parseIds(flag: string, text: string): number[] {
  const bare = text.trim().replace(/^\[([^[\]]*)\]$/, '$1');
  const words = bare.split(/[\s,]+/).filter((word) => word !== '');
  return words.map((word) => {
    if (!/^\d+$/.test(word) || Number(word) > 0x7fff_ffff) throw refuse(flag, 'token ids such as 1,2,3', word);
    return Number(word);
  });
}

/** Positions among `numTokens` tokens: `0,5,last` or `all`. */
export function parsePositions(flag: string, text: string, numTokens: number): number[] {
  if (text.trim() === 'all') return Array.from({ length: numTokens }, (_, index) => index);
  const words = text.split(',').map((word) => word.trim());
  return words.map((word) => {
    const position = word === 'last' ? numTokens - 1 : /^\d+$/.test(word) ? Number(word) : Number.NaN;
    if (!(position < numTokens)) {
      throw refuse(flag, `positions from 0 to ${numTokens - 1}, 'last' or 'all'`, word);
    }
    return position;
  });
}

const escapes: Readonly<Record<string, string>> = { n: '\n', r: '\r', t: '\t', '\\': '\\', "'": "'", '"': '"' };

/** Replaces `\n`, `\t`, `\r`, `\\`, `\'` and `\"`; leaves other backslashes alone. */
export function unescapeText(text: string): string {
  return text.replaceAll(/\\(.)/gs, (whole, character: string) => escapes[character] ?? whole);
}
