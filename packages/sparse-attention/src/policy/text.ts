/** The text form of one policy: `kind` or `kind:key=value,key=value`. */
import { ArgumentError } from '@winnow/tensor';
import { schemaOf, type FieldValue, type PolicyField } from './fields.js';
import type { AttentionPolicy } from './kinds.js';
import { checkPolicy, complete, expectedOf, fits, knownSchema } from './values.js';

/** Whether a text is JSON rather than the language of policies. */
export function isJson(text: string): boolean {
  return text.trimStart().startsWith('{');
}

/** @throws {ArgumentError} for text that is not JSON */
export function parseJson(text: string, argument: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    const hint = (cause as Error).message;
    throw new ArgumentError({ argument, expected: 'a policy or its JSON', actual: text, hint });
  }
}

/**
 * Reads a policy such as `subquadratic:window=256,globals=0+5` or `h2o:chunk=1024` (an alias of `h2o-prefill`), or its
 * JSON.
 * @throws {ArgumentError} for an unknown name, key or value, a repeated key, or an impossible combination
 */
export function parsePolicy(text: string, argument = 'policy'): AttentionPolicy {
  if (isJson(text)) return checkPolicy(parseJson(text, argument), argument);
  const colon = text.indexOf(':');
  const name = (colon === -1 ? text : text.slice(0, colon)).trim();
  const schema = knownSchema(name, argument);
  const given: Record<string, FieldValue> = {};
  const parts = colon === -1 ? [] : text.slice(colon + 1).split(',');
  for (const part of parts) {
    const equals = part.indexOf('=');
    const key = (equals === -1 ? part : part.slice(0, equals)).trim();
    const field = schema.fields.find((candidate) => candidate.key === key);
    if (field === undefined || equals === -1) {
      const expected = schema.fields.map((candidate) => `${candidate.key}=...`).join(', ') || 'no options';
      throw new ArgumentError({ argument: `${argument}: ${name}`, expected, actual: JSON.stringify(part) });
    }
    if (given[field.property] !== undefined) {
      throw new ArgumentError({ argument: `${argument}: ${name}`, expected: `${key} at most once`, actual: text });
    }
    const word = part.slice(equals + 1).trim();
    const value = valueOf(field, word);
    if (!fits(field, value)) {
      throw new ArgumentError({
        argument: `${argument}: ${name}: ${key}`,
        expected: expectedOf(field),
        actual: word === '' ? 'nothing' : word,
      });
    }
    given[field.property] = value;
  }
  return complete(schema, given, `${argument}: ${name}`);
}

function valueOf({ type, words = [] }: PolicyField, word: string): unknown {
  switch (type) {
    case 'choice':
      return word;
    case 'boolean':
      return word === 'true' ? true : word === 'false' ? false : undefined;
    case 'positions':
      return words.includes(word) ? [] : word.split('+').map(numberOf);
    case 'integer':
    case 'number':
      return words.includes(word) ? word : numberOf(word);
  }
}

function numberOf(word: string): number {
  return /^\d+(\.\d+)?(e[+-]?\d+)?$/i.test(word) ? Number(word) : NaN;
}

/**
 * Formats a policy so that `parsePolicy` restores it: the fields that differ from the defaults, or all with `full`.
 */
export function formatPolicy(policy: AttentionPolicy, { full = false }: { readonly full?: boolean } = {}): string {
  const { fields } = knownSchema(policy.kind, 'policy');
  const values = policy as unknown as Readonly<Record<string, FieldValue>>;
  // A default may depend on other fields, so the printed fields must lead to the same defaults.
  const printed: Record<string, FieldValue> = {};
  for (const { property, fallback } of fields) {
    if (full || !isSame(fallback({}), values[property])) printed[property] = values[property];
  }
  for (const { property, fallback } of fields) {
    if (isSame(fallback(printed), values[property]) && !full) delete printed[property];
    else printed[property] = values[property];
  }
  const parts = fields
    .filter(({ property }) => printed[property] !== undefined)
    .map(({ key, property, words = [] }) => {
      const value = printed[property];
      const text = Array.isArray(value) ? (value.length === 0 ? words[0] : value.join('+')) : String(value);
      return `${key}=${text}`;
    });
  return parts.length === 0 ? policy.kind : `${policy.kind}:${parts.join(',')}`;
}

function isSame(a: FieldValue, b: FieldValue): boolean {
  return Array.isArray(a) && Array.isArray(b) ? a.join() === b.join() : a === b;
}

/** Whether a word names a kind of policy, so that a text starting with it is one policy. */
export function isPolicyName(word: string): boolean {
  return schemaOf(word) !== undefined;
}
