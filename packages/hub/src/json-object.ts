/** JSON files with typed access: a wrong or missing field is a `FormatError` that names file and field. */
import { HtmlPageError, readBytes, type ByteSource } from '@winnow/bytes';
import { describeValue, FormatError, isRecord, jsonDepth, maxJsonDepth } from '@winnow/tensor';
import type { HubFiles } from './files.js';
import { findJsonError, relaxInfinity } from './json-error.js';

/**
 * An object of a JSON file. For each type of value there is `kind(field)`, which throws when the field is missing or
 * has another type, and `optionalKind(field)`, which returns `undefined` when the field is missing or null and throws
 * when it has another type.
 */
export class JsonObject {
  /** The file, for error messages. */
  readonly source: string;
  /** The path within the file, for error messages: empty for the root, `rope_scaling` for a part. */
  readonly path: string;
  /** The parsed value. */
  readonly value: Readonly<Record<string, unknown>>;

  constructor(source: string, value: Readonly<Record<string, unknown>>, path = '') {
    this.source = source;
    this.value = value;
    this.path = path;
  }

  /** Whether the field exists and is not null. */
  has(field: string): boolean {
    return this.#get(field) !== undefined;
  }

  keys(): string[] {
    return Object.keys(this.value);
  }

  /** @throws {FormatError} */
  string(field: string): string {
    return this.#need(field, this.optionalString(field), 'a string');
  }

  /** @throws {FormatError} */
  optionalString(field: string): string | undefined {
    return this.#check(field, 'a string', (value) => typeof value === 'string');
  }

  /** A finite number. @throws {FormatError} */
  number(field: string): number {
    return this.#need(field, this.optionalNumber(field), 'a number');
  }

  /** @throws {FormatError} */
  optionalNumber(field: string): number | undefined {
    return this.#check(field, 'a number', (value) => typeof value === 'number' && Number.isFinite(value));
  }

  /** An integer between -(2^53 - 1) and 2^53 - 1. @throws {FormatError} */
  integer(field: string): number {
    return this.#need(field, this.optionalInteger(field), 'an integer');
  }

  /** @throws {FormatError} */
  optionalInteger(field: string): number | undefined {
    return this.#check(field, 'an integer', Number.isSafeInteger);
  }

  /** @throws {FormatError} */
  boolean(field: string): boolean {
    return this.#need(field, this.optionalBoolean(field), 'true or false');
  }

  /** @throws {FormatError} */
  optionalBoolean(field: string): boolean | undefined {
    return this.#check(field, 'true or false', (value) => typeof value === 'boolean');
  }

  /** @throws {FormatError} */
  object(field: string): JsonObject {
    return this.#need(field, this.optionalObject(field), 'an object');
  }

  /** @throws {FormatError} */
  optionalObject(field: string): JsonObject | undefined {
    const value = this.#check<Record<string, unknown>>(field, 'an object', isRecord);
    return value === undefined ? undefined : new JsonObject(this.source, value, this.fieldPath(field));
  }

  /** An array of anything. @throws {FormatError} */
  array(field: string): readonly unknown[] {
    return this.#need(field, this.optionalArray(field), 'an array');
  }

  /** @throws {FormatError} */
  optionalArray(field: string): readonly unknown[] | undefined {
    return this.#check(field, 'an array', Array.isArray);
  }

  /** @throws {FormatError} */
  numbers(field: string): readonly number[] {
    return this.#need(field, this.optionalNumbers(field), 'an array of numbers');
  }

  /** @throws {FormatError} */
  optionalNumbers(field: string): readonly number[] | undefined {
    return this.#check(field, 'an array of numbers', isArrayOf<number>('number'));
  }

  /** @throws {FormatError} */
  strings(field: string): readonly string[] {
    return this.#need(field, this.optionalStrings(field), 'an array of strings');
  }

  /** @throws {FormatError} */
  optionalStrings(field: string): readonly string[] | undefined {
    return this.#check(field, 'an array of strings', isArrayOf<string>('string'));
  }

  /** Creates a `FormatError` for a field whose value the caller rejects. */
  invalid(field: string, message: string): FormatError {
    return new FormatError({ source: this.source, field: this.fieldPath(field), message });
  }

  /** For error messages: `rope_scaling.factor`. */
  fieldPath(field: string): string {
    return this.path === '' ? field : `${this.path}.${field}`;
  }

  #get(field: string): unknown {
    return Object.hasOwn(this.value, field) ? (this.value[field] ?? undefined) : undefined;
  }

  #check<T>(field: string, expected: string, isRight: (value: unknown) => boolean): T | undefined {
    const value = this.#get(field);
    if (value !== undefined && !isRight(value)) {
      throw this.invalid(field, `expected ${expected}, found ${describeValue(value)}`);
    }
    return value as T | undefined;
  }

  #need<T>(field: string, value: T | undefined, expected: string): T {
    if (value === undefined) {
      const found = Object.hasOwn(this.value, field) ? 'null' : 'no such field';
      throw this.invalid(field, `expected ${expected}, found ${found}`);
    }
    return value;
  }
}

/**
 * Parses a JSON text. `Infinity`, which Python's writer puts into some configs, is accepted as a number.
 * @throws {FormatError} with the byte offset of the first error, and for more than `maxJsonDepth` levels
 */
export function parseJson(text: string, source: string): unknown {
  const depth = jsonDepth(text);
  if (depth > maxJsonDepth) {
    const message = `expected at most ${maxJsonDepth} levels of brackets, found ${depth}`;
    throw new FormatError({ source, byteOffset: 0, field: 'JSON', message });
  }
  try {
    return JSON.parse(text);
  } catch (cause) {
    const relaxed = relaxInfinity(text);
    if (relaxed !== text) {
      try {
        return JSON.parse(relaxed);
      } catch {
        // reported below
      }
    }
    const at = findJsonError(relaxed);
    const found = at >= text.length ? 'the end' : JSON.stringify(text.slice(at, at + 20));
    const byteOffset = new TextEncoder().encode(text.slice(0, at)).length;
    throw new FormatError({ source, byteOffset, field: 'JSON', message: `not valid JSON, found ${found}` }, { cause });
  }
}

/** @throws {FormatError} when the text is not JSON or its value is not an object */
export function parseJsonObject(text: string, source: string): JsonObject {
  const value = parseJson(text, source);
  if (!isRecord(value)) {
    throw new FormatError({
      source,
      byteOffset: 0,
      field: 'JSON',
      message: `expected an object, found ${describeValue(value)}`,
    });
  }
  return new JsonObject(source, value);
}

/**
 * Why a folder seems to lack a file: the message of the server that answered with a page of HTML, as servers of web
 * apps do for every name that they do not have. `undefined` for any other reason.
 */
export async function pageInsteadOf(files: HubFiles, name: string): Promise<string | undefined> {
  try {
    await (await files.open(name)).close();
  } catch (error) {
    if (error instanceof HtmlPageError) return error.message;
  }
  return undefined;
}

/**
 * Reads a text file; `undefined` when there is none, or a page of HTML in its place.
 * @throws {FormatError} when it is larger than `maxBytes` or not UTF-8
 * @throws {IoError} when it cannot be read
 */
export async function readTextFile(
  files: HubFiles,
  name: string,
  maxBytes: number,
  options: { signal?: AbortSignal } = {},
): Promise<string | undefined> {
  if (!(await files.has(name))) return undefined;
  let source: ByteSource;
  try {
    source = await files.open(name);
  } catch (error) {
    if (error instanceof HtmlPageError) return undefined;
    throw error;
  }
  try {
    if (source.sizeBytes > maxBytes) {
      throw new FormatError({
        source: name,
        field: 'size',
        message: `expected at most ${maxBytes} bytes, found ${source.sizeBytes}`,
      });
    }
    const bytes = await readBytes(source, 0, source.sizeBytes, options);
    try {
      return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    } catch (cause) {
      throw new FormatError({ source: name, field: 'text', message: 'expected UTF-8' }, { cause });
    }
  } finally {
    await source.close();
  }
}

/** `readTextFile` and `parseJsonObject` in one. */
export async function readJsonFile(
  files: HubFiles,
  name: string,
  maxBytes: number,
  options: { signal?: AbortSignal } = {},
): Promise<JsonObject | undefined> {
  const text = await readTextFile(files, name, maxBytes, options);
  return text === undefined ? undefined : parseJsonObject(text, name);
}

function isArrayOf<T>(kind: 'number' | 'string'): (value: unknown) => value is T[] {
  return (value): value is T[] => Array.isArray(value) && value.every((item) => typeof item === kind);
}
