/** Typed access to parsed JSON; any mismatch is a `FormatError` that names the field. */
import { describeValue, FormatError, isRecord } from '@winnow/tensor';

export type JsonObject = { readonly [key: string]: unknown };

/** A `FormatError` about a field of tokenizer.json or tokenizer_config.json. */
export function jsonError(field: string, message: string, source = 'tokenizer.json'): FormatError {
  return new FormatError({ source, field, message });
}

export function asObject(value: unknown, field: string): JsonObject {
  if (isRecord(value)) return value;
  throw jsonError(field, `expected an object, found ${describeValue(value)}`);
}

export function asArray(value: unknown, field: string): readonly unknown[] {
  if (Array.isArray(value)) return value;
  throw jsonError(field, `expected an array, found ${describeValue(value)}`);
}

export function asString(value: unknown, field: string): string {
  if (typeof value === 'string') return value;
  throw jsonError(field, `expected a string, found ${describeValue(value)}`);
}

export function optionalString(value: unknown, field: string): string | undefined {
  return value === undefined || value === null ? undefined : asString(value, field);
}

export function optionalBoolean(value: unknown, field: string): boolean | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value === 'boolean') return value;
  throw jsonError(field, `expected a boolean, found ${describeValue(value)}`);
}

export function asNumber(value: unknown, field: string): number {
  if (typeof value === 'number' && !Number.isNaN(value)) return value;
  throw jsonError(field, `expected a number, found ${describeValue(value)}`);
}

/**
 * Largest vocabulary accepted: the largest models have about 300 000 tokens, and ids are indices into arrays, so one
 * absurd id in a tiny file must not reserve gigabytes.
 */
export const MAX_VOCABULARY: number = 1 << 22;

export function asId(value: unknown, field: string): number {
  if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value < MAX_VOCABULARY) return value;
  throw jsonError(field, `expected a token id below ${MAX_VOCABULARY}, found ${describeValue(value)}`);
}

/** A component that Winnow does not implement. */
export function unsupported(field: string, type: unknown): FormatError {
  return jsonError(field, `not supported: ${describeValue(type)}`);
}
