/** Patterns of tokenizer.json: literal strings, or Oniguruma expressions translated by the library. */
import { asObject, jsonError } from './value.js';
import { translateOniguruma } from './library.js';

/** The global regular expression of `{ String }` or `{ Regex }`. @throws FormatError */
export function readPattern(value: unknown, field: string): RegExp {
  const pattern = asObject(value, field);
  if (typeof pattern['String'] === 'string') {
    if (pattern['String'] === '') throw jsonError(`${field}.String`, 'expected a string with at least one character');
    return new RegExp(pattern['String'].replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&'), 'gu');
  }
  if (typeof pattern['Regex'] !== 'string') throw jsonError(field, 'expected an object with "String" or "Regex"');
  try {
    return translateOniguruma(pattern['Regex']);
  } catch (cause) {
    throw jsonError(`${field}.Regex`, `cannot translate the expression: ${String(cause)}`);
  }
}
