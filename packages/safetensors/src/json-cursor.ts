/**
 * A streaming JSON parser that tracks its position: every error has a byte offset, and a duplicate key in an object is
 * an error (`JSON.parse` would silently keep the last one).
 */
import { FormatError } from '@winnow/tensor';
import { MAX_JSON_DEPTH } from './limits.js';

const quoteMark = 0x22;
const backslash = 0x5c;
const comma = 0x2c;
const colon = 0x3a;
const minus = 0x2d;
const digit0 = 0x30;
const digit9 = 0x39;

/** Maximum length of a name in a message: a malformed header can hold one of many megabytes. */
const maxShownLength = 120;

/** A name for error messages, truncated when it is very long. */
export function shown(name: string): string {
  return name.length <= maxShownLength ? name : `${name.slice(0, maxShownLength)}... (${name.length} characters)`;
}

export class JsonCursor {
  readonly source: string;
  readonly #bytes: Uint8Array;
  readonly #baseOffset: number;
  readonly #decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  #position = 0;

  /** `baseOffset` is where `bytes` start in the source, so that reported offsets are offsets in the source. */
  constructor(bytes: Uint8Array, source: string, baseOffset: number) {
    this.#bytes = bytes;
    this.source = source;
    this.#baseOffset = baseOffset;
  }

  /** Offset of the next byte in the source. */
  get byteOffset(): number {
    return this.#baseOffset + this.#position;
  }

  fail(field: string, message: string, byteOffset: number = this.byteOffset, cause?: unknown): never {
    throw new FormatError(
      { source: this.source, byteOffset, field: field === '' ? '""' : shown(field), message },
      cause === undefined ? {} : { cause },
    );
  }

  /** The next byte after whitespace, -1 at the end. Only the whitespace is consumed. */
  peek(): number {
    for (; this.#position < this.#bytes.length; this.#position++) {
      const byte = this.#bytes[this.#position] as number;
      if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) return byte;
    }
    return -1;
  }

  /** Checks that only whitespace is left. */
  expectEnd(field: string): void {
    if (this.peek() !== -1) this.fail(field, `expected nothing after the JSON value, found ${this.#found()}`);
  }

  /** Calls `onMember` for each key with the cursor at its value, which `onMember` must consume. */
  readObject(field: string, onMember: (key: string, keyOffset: number) => void): void {
    this.#expect(0x7b, field, 'an object');
    if (this.peek() === 0x7d) {
      this.#position++;
      return;
    }
    const keys = new Set<string>();
    for (;;) {
      this.peek();
      const keyOffset = this.byteOffset;
      const key = this.readString(`${field}: key`);
      if (keys.has(key)) this.fail(field, `the key "${shown(key)}" appears twice`, keyOffset);
      keys.add(key);
      this.#expect(colon, field, `":" after the key "${shown(key)}"`);
      onMember(key, keyOffset);
      if (this.peek() === comma) {
        this.#position++;
        continue;
      }
      this.#expect(0x7d, field, '"," or "}"');
      return;
    }
  }

  /** Calls `onItem` for each item, with the cursor at it; `onItem` must consume it. */
  readArray(field: string, onItem: (index: number) => void): void {
    this.#expect(0x5b, field, 'an array');
    if (this.peek() === 0x5d) {
      this.#position++;
      return;
    }
    for (let index = 0; ; index++) {
      onItem(index);
      if (this.peek() === comma) {
        this.#position++;
        continue;
      }
      this.#expect(0x5d, field, '"," or "]"');
      return;
    }
  }

  readString(field: string): string {
    this.#expect(quoteMark, field, 'a string');
    const start = this.#position;
    const startOffset = this.byteOffset - 1;
    let hasEscapes = false;
    for (;;) {
      const byte = this.#bytes[this.#position];
      if (byte === undefined) this.fail(field, 'the string has no end', startOffset);
      if (byte === quoteMark) break;
      if (byte < 0x20) this.fail(field, `control character 0x${byte.toString(16).padStart(2, '0')} in a string`);
      if (byte === backslash) {
        hasEscapes = true;
        this.#position++;
      }
      this.#position++;
    }
    const raw = this.#bytes.subarray(start, this.#position);
    this.#position++;
    let text: string;
    try {
      text = this.#decoder.decode(raw);
      if (hasEscapes) text = JSON.parse(`"${text}"`) as string;
    } catch (cause) {
      this.fail(field, hasEscapes ? 'invalid UTF-8 or escape in a string' : 'invalid UTF-8', startOffset, cause);
    }
    if (hasEscapes && !text.isWellFormed()) this.fail(field, 'unpaired surrogate in a string', startOffset);
    return text;
  }

  /** A whole number from 0 to 2^53 - 1, written in digits only. */
  readNonNegativeInteger(field: string): number {
    const first = this.peek();
    const start = this.#position;
    if (first < digit0 || first > digit9) {
      this.fail(field, `expected a non-negative integer, found ${this.#found()}`);
    }
    let value = 0;
    let byte: number | undefined = first;
    while (byte !== undefined && byte >= digit0 && byte <= digit9) {
      value = value * 10 + (byte - digit0);
      if (!Number.isSafeInteger(value)) {
        this.fail(field, 'expected an integer of at most 2^53 - 1, found a larger one', this.#baseOffset + start);
      }
      byte = this.#bytes[++this.#position];
    }
    if (first === digit0 && this.#position - start > 1) {
      this.fail(field, 'expected an integer without leading zeros', this.#baseOffset + start);
    }
    if (byte === 0x2e || byte === 0x65 || byte === 0x45) {
      this.fail(field, 'expected a non-negative integer, found a fraction or exponent', this.#baseOffset + start);
    }
    return value;
  }

  /** Any JSON number. */
  readNumber(field: string): number {
    this.peek();
    const start = this.#position;
    while (isNumberByte(this.#bytes[this.#position])) this.#position++;
    const text = String.fromCharCode(...this.#bytes.subarray(start, Math.min(this.#position, start + maxShownLength)));
    if (this.#position - start > maxShownLength || !/^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(text)) {
      this.fail(field, 'expected a number', this.#baseOffset + start);
    }
    return Number(text);
  }

  /** Consumes `null` if it is next. */
  tryNull(): boolean {
    if (this.peek() !== 0x6e || !this.#matches('null')) return false;
    this.#position += 4;
    return true;
  }

  /** Consumes a value of any kind, checking its syntax. */
  skipValue(field: string, depth = 0): void {
    if (depth > MAX_JSON_DEPTH) this.fail(field, `nested deeper than ${MAX_JSON_DEPTH} levels`);
    const byte = this.peek();
    if (byte === 0x7b) this.readObject(field, () => this.skipValue(field, depth + 1));
    else if (byte === 0x5b) this.readArray(field, () => this.skipValue(field, depth + 1));
    else if (byte === quoteMark) this.readString(field);
    else if (byte === minus || (byte >= digit0 && byte <= digit9)) this.readNumber(field);
    else {
      const literal = ['true', 'false', 'null'].find((word) => this.#matches(word));
      if (literal === undefined) this.fail(field, `expected a JSON value, found ${this.#found()}`);
      this.#position += literal.length;
    }
  }

  #expect(byte: number, field: string, expected: string): void {
    if (this.peek() !== byte) this.fail(field, `expected ${expected}, found ${this.#found()}`);
    this.#position++;
  }

  #matches(word: string): boolean {
    for (let i = 0; i < word.length; i++) {
      if (this.#bytes[this.#position + i] !== word.charCodeAt(i)) return false;
    }
    return true;
  }

  #found(): string {
    const byte = this.#bytes[this.#position];
    if (byte === undefined) return 'the end of the JSON text';
    return byte > 0x20 && byte < 0x7f
      ? `"${String.fromCharCode(byte)}"`
      : `byte 0x${byte.toString(16).padStart(2, '0')}`;
  }
}

function isNumberByte(byte: number | undefined): boolean {
  if (byte === undefined) return false;
  return (
    (byte >= digit0 && byte <= digit9) || byte === minus || byte === 0x2b || byte === 0x2e || (byte | 0x20) === 0x65
  );
}
