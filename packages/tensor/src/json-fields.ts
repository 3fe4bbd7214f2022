/** Fields of untrusted JSON, each checked as it is taken. */
import { FormatError } from './errors.js';
import { describeValue, isRecord } from './values.js';

/** A JSON object of a file, with its path for messages. */
export class JsonFields {
  readonly #value: Readonly<Record<string, unknown>>;
  readonly #source: string;
  readonly #path: string;

  constructor(value: unknown, source: string, path: string) {
    if (!isRecord(value)) {
      throw new FormatError({ source, field: path, message: `expected an object, found ${describeValue(value)}` });
    }
    this.#value = value;
    this.#source = source;
    this.#path = path;
  }

  /** @throws {FormatError} always */
  refuse(name: string, expected: string): never {
    const message = `expected ${expected}, found ${describeValue(this.#value[name])}`;
    throw new FormatError({ source: this.#source, field: `${this.#path}.${name}`, message });
  }

  has(name: string): boolean {
    return Object.hasOwn(this.#value, name);
  }

  /** A finite number in a range. */
  number(name: string, min: number, max: number): number {
    const value = this.#value[name];
    if (typeof value !== 'number' || !(value >= min && value <= max)) {
      return this.refuse(name, `a number from ${min} to ${max}`);
    }
    return value;
  }

  integer(name: string, min: number, max: number): number {
    const value = this.number(name, min, max);
    return Number.isInteger(value) ? value : this.refuse(name, `an integer from ${min} to ${max}`);
  }

  boolean(name: string): boolean {
    const value = this.#value[name];
    return typeof value === 'boolean' ? value : this.refuse(name, 'true or false');
  }

  text(name: string): string {
    const value = this.#value[name];
    return typeof value === 'string' ? value : this.refuse(name, 'a string');
  }

  oneOf<T extends string>(name: string, values: readonly T[]): T {
    const found = values.find((value) => value === this.#value[name]);
    return found ?? this.refuse(name, values.join(' | '));
  }

  object(name: string): JsonFields {
    return new JsonFields(this.#value[name], this.#source, `${this.#path}.${name}`);
  }

  objects(name: string, maxCount: number): JsonFields[] {
    const value = this.#value[name];
    if (!Array.isArray(value) || value.length > maxCount) {
      return this.refuse(name, `an array of at most ${maxCount} objects`);
    }
    return value.map((item, index) => new JsonFields(item, this.#source, `${this.#path}.${name}[${index}]`));
  }
}
