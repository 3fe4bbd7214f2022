/** Metadata of a GGUF file with typed access. */
import { FormatError } from '@winnow/tensor';
import type { GgufArray, GgufTypedArray, GgufTypedValue } from './value-types.js';

/** An entry as stored in the file. */
export interface GgufMetadataEntry {
  readonly value: GgufTypedValue;
  /** Offset of the value in the file; `undefined` for a value that does not come from a file. */
  readonly byteOffset?: number;
}

/**
 * Keys and typed values, in the order of the file. Getters throw `FormatError` with the key and its offset when the
 * key is missing or its value has another type. A second argument is returned for a missing key (`getNumber(key,
 * undefined)` for an optional one); a value of the wrong type still throws.
 */
export class GgufMetadata implements Iterable<[string, GgufTypedValue]> {
  readonly #source: string;
  readonly #entries: ReadonlyMap<string, GgufMetadataEntry>;

  constructor(source: string, entries: ReadonlyMap<string, GgufMetadataEntry>) {
    this.#source = source;
    this.#entries = entries;
  }

  /** Number of keys. */
  get size(): number {
    return this.#entries.size;
  }

  has(key: string): boolean {
    return this.#entries.has(key);
  }

  /** The value with its stored type, or `undefined` when the key is missing. */
  get(key: string): GgufTypedValue | undefined {
    return this.#entries.get(key)?.value;
  }

  keys(): IterableIterator<string> {
    return this.#entries.keys();
  }

  *[Symbol.iterator](): IterableIterator<[string, GgufTypedValue]> {
    for (const [key, { value }] of this.#entries) yield [key, value];
  }

  getString<T = never>(key: string, ...fallback: [T?]): string | T {
    const found = this.#find(key, fallback);
    if (found === undefined) return fallback[0] as T;
    return found.type === 'string' ? found.value : this.#refuse(key, 'a string', found);
  }

  getBoolean<T = never>(key: string, ...fallback: [T?]): boolean | T {
    const found = this.#find(key, fallback);
    if (found === undefined) return fallback[0] as T;
    return found.type === 'bool' ? found.value : this.#refuse(key, 'a boolean', found);
  }

  /** Any integer or float that a JavaScript number represents exactly. */
  getNumber<T = never>(key: string, ...fallback: [T?]): number | T {
    const found = this.#find(key, fallback);
    if (found === undefined) return fallback[0] as T;
    return typeof found.value === 'number' ? found.value : this.#refuse(key, 'a number', found);
  }

  /** A value stored as an integer, of at most 2^53 - 1 in magnitude. */
  getInteger<T = never>(key: string, ...fallback: [T?]): number | T {
    const found = this.#find(key, fallback);
    if (found === undefined) return fallback[0] as T;
    if (typeof found.value === 'number' && found.type !== 'float32' && found.type !== 'float64') return found.value;
    return this.#refuse(key, 'an integer', found);
  }

  /** A value stored as an integer of any magnitude. */
  getBigInt<T = never>(key: string, ...fallback: [T?]): bigint | T {
    const found = this.#find(key, fallback);
    if (found === undefined) return fallback[0] as T;
    if (typeof found.value === 'bigint') return found.value;
    if (typeof found.value === 'number' && found.type !== 'float32' && found.type !== 'float64') {
      return BigInt(found.value);
    }
    return this.#refuse(key, 'an integer', found);
  }

  /** Any array, with the type of its elements. */
  getArray<T = never>(key: string, ...fallback: [T?]): GgufArray | T {
    const found = this.#find(key, fallback);
    if (found === undefined) return fallback[0] as T;
    return found.type === 'array' ? found : this.#refuse(key, 'an array', found);
  }

  getStrings<T = never>(key: string, ...fallback: [T?]): readonly string[] | T {
    const found = this.#find(key, fallback);
    if (found === undefined) return fallback[0] as T;
    if (found.type === 'array' && found.elementType === 'string') return found.value;
    return this.#refuse(key, 'an array of strings', found);
  }

  getBooleans<T = never>(key: string, ...fallback: [T?]): readonly boolean[] | T {
    const found = this.#find(key, fallback);
    if (found === undefined) return fallback[0] as T;
    if (found.type === 'array' && found.elementType === 'bool') return found.value;
    return this.#refuse(key, 'an array of booleans', found);
  }

  /** An array of numbers of any type; a typed array of the stored type, except for 64-bit integers. */
  getNumbers<T = never>(key: string, ...fallback: [T?]): GgufTypedArray | readonly number[] | T {
    const found = this.#find(key, fallback);
    if (found === undefined) return fallback[0] as T;
    if (found.type === 'array') {
      switch (found.elementType) {
        case 'bool':
        case 'string':
        case 'array':
          break;
        case 'uint64':
        case 'int64':
          if (found.value.every((value) => typeof value === 'number')) return found.value as readonly number[];
          return this.#refuse(key, 'integers of at most 2^53 - 1', found);
        default:
          return found.value;
      }
    }
    return this.#refuse(key, 'an array of numbers', found);
  }

  /** Creates an error about this key, for checks beyond its type. */
  error(key: string, message: string): FormatError {
    const byteOffset = this.#entries.get(key)?.byteOffset;
    return new FormatError({
      source: this.#source,
      ...(byteOffset === undefined ? {} : { byteOffset }),
      field: metadataField(key),
      message,
    });
  }

  #find(key: string, fallback: readonly unknown[]): GgufTypedValue | undefined {
    const found = this.#entries.get(key);
    if (found === undefined && fallback.length === 0) throw this.error(key, 'expected this key, but it is missing');
    return found?.value;
  }

  #refuse(key: string, expected: string, found: GgufTypedValue): never {
    const type = found.type === 'array' ? `array of ${found.elementType}` : found.type;
    const value = typeof found.value === 'bigint' ? ` ${found.value}` : '';
    throw this.error(key, `expected ${expected}, got ${type}${value}`);
  }
}

/** The name of a key in messages and `FormatError.field`. */
export function metadataField(key: string): string {
  return `metadata[${JSON.stringify(key)}]`;
}
