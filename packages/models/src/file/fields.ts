/** Typed access to the settings of a model file of any format. */
import { describeValue, FormatError, isRecord } from '@winnow/tensor';

/** Settings by name. When a setting has the wrong type, getters throw a `FormatError` that names it. */
export class Fields {
  readonly source: string;
  readonly #get: (name: string) => unknown;

  /** @param source name of the file, for error messages */
  constructor(source: string, get: (name: string) => unknown) {
    this.source = source;
    this.#get = get;
  }

  /** The settings of a JSON object. */
  static ofJson(source: string, json: unknown): Fields {
    if (!isRecord(json)) {
      throw new FormatError({
        source,
        field: 'document',
        message: `expected a JSON object, got ${describeValue(json)}`,
      });
    }
    return new Fields(source, (name) => (Object.hasOwn(json, name) ? json[name] : undefined));
  }

  /** The settings with some values replaced. */
  with(own: Readonly<Record<string, unknown>>): Fields {
    return new Fields(this.source, (name) => (Object.hasOwn(own, name) ? own[name] : this.#get(name)));
  }

  /** The settings without those named. */
  without(isHidden: (name: string) => boolean): Fields {
    return new Fields(this.source, (name) => (isHidden(name) ? undefined : this.#get(name)));
  }

  /** These settings, with `names` taken from `others` where they are missing. */
  over(others: Fields, names: readonly string[]): Fields {
    const get = (name: string): unknown => {
      const value = this.#get(name);
      return value === undefined && names.includes(name) ? others.#get(name) : value;
    };
    return new Fields(this.source, get);
  }

  /** The raw value; `undefined` for null. */
  raw(name: string): unknown {
    return this.#get(name) ?? undefined;
  }

  has(name: string): boolean {
    return this.raw(name) !== undefined;
  }

  /** Whether the setting is explicitly null, which differs from its default. */
  isNull(name: string): boolean {
    return this.#get(name) === null;
  }

  integer(name: string, fallback?: number): number {
    const value = this.#get(name) ?? fallback;
    if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 0) return value;
    throw this.refusal(name, 'a non-negative integer', value);
  }

  /** Like `integer`, but rejects zero. */
  count(name: string, fallback?: number): number {
    const value = this.integer(name, fallback);
    if (value === 0) throw this.refusal(name, 'a positive integer', value);
    return value;
  }

  /** Counts in a list of this length, or of one setting for all. */
  counts(name: string, length: number, fallback?: number): number[] {
    const value = this.#get(name);
    if (!isList(value)) return Array.from({ length }, () => this.count(name, fallback));
    if (value.length !== length) throw this.refusal(name, `an array of ${length}`, value);
    return Array.from(value, (each) => this.with({ [name]: each }).count(name));
  }

  number(name: string, fallback?: number): number {
    const value = this.#get(name) ?? fallback;
    if (typeof value === 'number' && Number.isFinite(value)) return value;
    throw this.refusal(name, 'a finite number', value);
  }

  string(name: string, fallback?: string): string {
    const value = this.#get(name) ?? fallback;
    if (typeof value === 'string') return value;
    throw this.refusal(name, 'a string', value);
  }

  boolean(name: string, fallback?: boolean): boolean {
    const value = this.#get(name) ?? fallback;
    if (typeof value === 'boolean') return value;
    throw this.refusal(name, 'true or false', value);
  }

  refusal(name: string, expected: string, value: unknown): FormatError {
    return new FormatError({
      source: this.source,
      field: name,
      message: `expected ${expected}, got ${describeValue(value)}`,
    });
  }
}

/** Whether a setting is an array, in GGUF files a typed one. */
export function isList(value: unknown): value is ArrayLike<unknown> {
  return Array.isArray(value) || ArrayBuffer.isView(value);
}
