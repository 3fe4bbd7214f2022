/**
 * Text that arrives in pieces, and parsers of it. A parser is a generator that yields where it needs more text, so that
 * it reads as if the whole text were there, and its result does not depend on where the pieces end.
 */

/** A parser that pauses for more text. */
export type Reading<Result> = Generator<void, Result, void>;

export class TextInput {
  /** Consumed text before `#at` is needed only while it is kept. */
  #text = '';
  #at = 0;
  #isKept = false;
  #hasEnded = false;

  push(text: string): void {
    if (!this.#isKept) {
      this.#text = this.#text.slice(this.#at);
      this.#at = 0;
    }
    this.#text += text;
  }

  end(): void {
    this.#hasEnded = true;
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** All text has been consumed, and the answer has ended. */
  get isDone(): boolean {
    return this.#hasEnded && this.#at === this.#text.length;
  }

  /** The text that has arrived and is not consumed. */
  get rest(): string {
    return this.#at === 0 ? this.#text : this.#text.slice(this.#at);
  }

  take(length: number): string {
    const taken = this.#text.slice(this.#at, this.#at + length);
    this.#at += taken.length;
    return taken;
  }

  /** Marks this place, to which `restore` returns. */
  keep(): void {
    this.#text = this.rest;
    this.#at = 0;
    this.#isKept = true;
  }

  restore(): void {
    if (this.#isKept) this.#at = 0;
    this.#isKept = false;
  }

  /** Forgets the marked place. */
  release(): void {
    this.#isKept = false;
  }
}

/** Consumes the text if it follows. */
export function* starts(input: TextInput, text: string): Reading<boolean> {
  for (;;) {
    const { rest } = input;
    if (rest.startsWith(text)) {
      input.take(text.length);
      return true;
    }
    if (input.hasEnded || !text.startsWith(rest)) return false;
    yield;
  }
}

/** Consumes the first of the texts that follows. No text may begin with another one. */
export function* startsWithOneOf(input: TextInput, texts: readonly string[]): Reading<string | undefined> {
  for (const text of texts) if (yield* starts(input, text)) return text;
  return undefined;
}

/** Consumes white space and returns it. */
export function* readSpace(input: TextInput): Reading<string> {
  let space = '';
  for (;;) {
    const { rest } = input;
    space += input.take(rest.length - rest.trimStart().length);
    if (input.rest !== '' || input.hasEnded) return space;
    yield;
  }
}

/** The next character, which is not consumed; empty at the end. */
export function* peek(input: TextInput): Reading<string> {
  while (input.rest === '' && !input.hasEnded) yield;
  return input.rest.charAt(0);
}

/**
 * Passes text on up to the first of the marks, which is not consumed. Text that may belong to a mark waits, and so does
 * the first half of a surrogate pair.
 * @param marks none begins with another one
 * @returns the mark; undefined when the text has ended
 */
export function* readUntil(
  input: TextInput,
  marks: readonly string[],
  write: (text: string) => void,
): Reading<string | undefined> {
  for (;;) {
    const { rest } = input;
    const found = firstOf(rest, marks);
    const isLast = found === undefined && input.hasEnded;
    const length = found?.index ?? (isLast ? rest.length : rest.length - heldLength(rest, marks));
    if (length > 0) write(input.take(length));
    if (found !== undefined || isLast) return found?.mark;
    yield;
  }
}

/** The text up to the first of the marks, which is not consumed; undefined when none follows within the limit. */
export function* captureUntil(
  input: TextInput,
  marks: readonly string[],
  maxLength: number = Infinity,
): Reading<string | undefined> {
  for (;;) {
    const found = firstOf(input.rest, marks);
    if (found !== undefined) return found.index <= maxLength ? input.take(found.index) : undefined;
    if (input.hasEnded || input.rest.length > maxLength) return undefined;
    yield;
  }
}

function firstOf(text: string, marks: readonly string[]): { index: number; mark: string } | undefined {
  let first: { index: number; mark: string } | undefined;
  for (const mark of marks) {
    const index = text.indexOf(mark);
    if (index !== -1 && (first === undefined || index < first.index)) first = { index, mark };
  }
  return first;
}

/** How many characters at the end may belong to a mark. */
function heldLength(text: string, marks: readonly string[]): number {
  let held = /[\uD800-\uDBFF]$/.test(text) ? 1 : 0;
  for (const mark of marks) {
    for (let length = Math.min(mark.length - 1, text.length); length > held; length--) {
      if (text.endsWith(mark.slice(0, length))) held = length;
    }
  }
  return held;
}
