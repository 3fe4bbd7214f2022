/** Matches of the host's regular expressions in long texts, in windows, since the host's engine cannot be interrupted. */
import { CapacityError, type SliceCounter, type Sliced } from '@winnow/tensor';

/** The text in [start, end). */
export interface Match {
  readonly start: number;
  readonly end: number;
}

/** Finds the matches of one text. */
export interface Search {
  /** Called before the first match is requested. @throws CapacityError for a text that is too long */
  prepare(work: SliceCounter): Sliced<void>;
  /**
   * The first match that starts at `from` or later, undefined if there is none, or the position from which to search
   * next if there is none before it. `from` must not decrease.
   */
  next(from: number): Match | number | undefined;
}

/** A regular expression that takes linear time. */
export interface Pattern {
  search(text: string): Search;
}

/** Number of characters in a window. */
const WINDOW = 1 << 17;
/** Matches up to this length are always found. Outside ASCII, the engine takes up to 50 ms for one. */
const SAFE_LENGTH = 1 << 20;
/** Expressions repeat at most this many characters before the end of an alternative. */
const MAX_FIXED = 16;
const BEYOND_ASCII = /[^\0-\x7f]/;

/**
 * An expression of which only the last part of each alternative has no maximum length, and without lookbehind, so that
 * a match that ends well within a window is a match of the whole text.
 */
export class HostPattern implements Pattern {
  readonly #pattern: RegExp;

  /** @param pattern has the flag `g` */
  constructor(pattern: RegExp) {
    this.#pattern = pattern;
  }

  search(text: string): Search {
    return new WindowSearch(this.#pattern, text);
  }
}

class WindowSearch implements Search {
  readonly #pattern: RegExp;
  readonly #text: string;
  /** Characters before the end of a window on which matches may depend. */
  readonly #guard: number;
  #start = 0;
  #window = '';
  #isLarge = false;

  constructor(pattern: RegExp, text: string) {
    this.#pattern = pattern;
    this.#text = text;
    this.#guard = MAX_FIXED * pattern.source.length;
    this.#move(0, WINDOW);
  }

  *prepare(work: SliceCounter): Sliced<void> {
    if (work.spend(1)) yield;
  }

  next(from: number): Match | number | undefined {
    if (this.#isLarge && from > this.#start) this.#move(from, WINDOW);
    for (let begin = from; ;) {
      const found = this.#matchIn(begin);
      const end = this.#start + this.#window.length;
      if (end === this.#text.length) return found;
      const certain = end - this.#guard;
      if (found !== undefined && found.end <= certain) return found;
      // the match may continue, or a longer one begin, beyond the window
      if (found?.start === this.#start) {
        this.#enlarge();
        continue;
      }
      begin = Math.max(begin, startOfCharacter(this.#text, Math.min(found?.start ?? certain, certain)));
      this.#move(begin, WINDOW);
      if (found === undefined) return begin;
    }
  }

  #matchIn(begin: number): Match | undefined {
    const pattern = this.#pattern;
    pattern.lastIndex = begin - this.#start;
    const match = pattern.exec(this.#window);
    if (match === null) return undefined;
    const start = this.#start + match.index;
    return { start, end: start + match[0].length };
  }

  /** @throws CapacityError for a match that would take the engine too long */
  #enlarge(): void {
    if (this.#isLarge && BEYOND_ASCII.test(this.#window)) throw wordTooLong(this.#text.length);
    this.#move(this.#start, this.#isLarge ? Infinity : SAFE_LENGTH);
    this.#isLarge = true;
  }

  #move(start: number, length: number): void {
    const end = start + length + 2 * this.#guard;
    this.#start = start;
    this.#window = this.#text.slice(start, end >= this.#text.length ? undefined : startOfCharacter(this.#text, end));
    this.#isLarge = false;
  }
}

/** A text with a word that is too long for the host's engine. */
export function wordTooLong(length: number): CapacityError {
  return new CapacityError({
    resource: 'tokenizer: a word without any break',
    needed: length,
    available: SAFE_LENGTH,
    unit: 'characters',
    hint: 'encode the text in parts',
  });
}

/** The position, or the one before it in the middle of a surrogate pair. */
function startOfCharacter(text: string, at: number): number {
  const isLow = (text.charCodeAt(at) & 0xfc00) === 0xdc00;
  return isLow && at > 0 && (text.charCodeAt(at - 1) & 0xfc00) === 0xd800 ? at - 1 : at;
}
