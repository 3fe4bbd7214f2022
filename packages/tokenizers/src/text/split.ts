/** Splits text into words with a sequence of regular expressions. */
import { finish, SliceCounter, type Sliced } from '@winnow/tensor';
import { HostPattern, type Search } from '../pattern/window-search.js';
import { IdList } from '../tables/id-list.js';

/** Appends the end offset of every piece of a text to a list; the pieces cover the text. */
export interface Splitter {
  /** For texts of at most `longLength` characters. */
  split(text: string, ends: IdList): void;
  /** For all texts. */
  splitSliced(text: string, ends: IdList, work: SliceCounter): Sliced<void>;
}

/** Longer texts and words are processed in slices. */
export const longLength = 4096;
/** Number of characters in a slice; each takes up to about a microsecond. */
const charactersPerSlice = 1 << 12;

/** A counter of characters. */
export function newSliceCounter(): SliceCounter {
  return new SliceCounter(charactersPerSlice);
}

/** `\s` of JavaScript includes U+FEFF and lacks U+0085; the tokenizers mean Unicode's White_Space. */
const WHITE_SPACE = '\\p{White_Space}';
const NOT_WHITE_SPACE = '\\P{White_Space}';

/** Compiles a pattern with the global flag; `\s` and `\S` get their Unicode meaning. Flag `v` allows `[A--B]`. */
export function compilePattern(source: string, flag: 'u' | 'v' = 'u'): RegExp {
  const unicode = source.replace(/\\(.)/gsu, (escape, character: string) =>
    character === 's' ? WHITE_SPACE : character === 'S' ? NOT_WHITE_SPACE : escape,
  );
  return new RegExp(unicode, `g${flag}`);
}

/** Matches are pieces, and so is the text between them. */
export function patternSplitter(pattern: RegExp): Splitter {
  const windows = new HostPattern(pattern);
  return {
    split(text, ends) {
      const cutter = new SearchCutter(windows.search(text), text, ends);
      while (!cutter.advance(Infinity));
    },
    *splitSliced(text, ends, work) {
      const cutter = new SearchCutter(windows.search(text), text, ends);
      for (let limit = 0; !cutter.advance(limit); limit = cutter.end + longLength) {
        if (work.spend(longLength)) yield;
      }
    },
  };
}

/** Cuts a text at the matches of a search. */
class SearchCutter {
  readonly #search: Search;
  readonly #text: string;
  readonly #ends: IdList;
  #next = 0;
  /** Everything before it is cut. */
  end = 0;

  constructor(search: Search, text: string, ends: IdList) {
    this.#search = search;
    this.#text = text;
    this.#ends = ends;
  }

  /** Returns true when the whole text is cut, false when the cuts have reached the limit, or after a long search. */
  advance(limit: number): boolean {
    const text = this.#text;
    const ends = this.#ends;
    while (this.end <= limit) {
      const match = this.#search.next(this.#next);
      if (match === undefined) {
        if (this.end < text.length) ends.push(text.length);
        return true;
      }
      if (typeof match === 'number') {
        this.#next = match;
        return false;
      }
      const { start, end } = match;
      if (start > this.end) ends.push(start);
      if (end > start) ends.push(end);
      this.#next = end > start ? end : start + (text.codePointAt(start)! > 0xffff ? 2 : 1);
      if (end > this.end) this.end = end;
    }
    return false;
  }
}

/**
 * Splits runs of digits into groups of three counted from the right. As in llama.cpp, the text before a run stays in
 * one piece with its first group; a later pattern separates them.
 */
export function numberGroupSplitter(): Splitter {
  return groupSplitter(/\p{N}+/gu, false);
}

/** The boundaries before the last three, six, ... ASCII digits of a run, and no others. */
export function digitBoundarySplitter(): Splitter {
  return groupSplitter(/[0-9]+/g, true);
}

// Splits between the groups of each run; before its start when that lies on a group boundary, otherwise after its end.
function groupSplitter(run: RegExp, cutsBefore: boolean): Splitter {
  const windows = new HostPattern(run);
  return slicedSplitter(function* (text, ends, work) {
    const search = windows.search(text);
    let done = 0;
    const cut = (at: number): void => {
      if (at > done) ends.push(at);
      done = Math.max(done, at);
    };
    for (let next = 0; ;) {
      const match = search.next(next);
      if (match === undefined) break;
      next = typeof match === 'number' ? match : match.end;
      if (work.spend(1)) yield;
      if (typeof match === 'number') continue;
      const { start, end } = match;
      const numDigits = numCodePoints(text, start, end);
      if (cutsBefore && numDigits % 3 === 0) cut(start);
      for (let at = start, left = numDigits; at < end; left--) {
        if (at > start && left % 3 === 0) cut(at);
        at += text.codePointAt(at)! > 0xffff ? 2 : 1;
        if (work.spend(1)) yield;
      }
      if (!cutsBefore) cut(end);
    }
    cut(text.length);
  });
}

function numCodePoints(text: string, start: number, end: number): number {
  let count = 0;
  for (let index = start; index < end; index++) if ((text.charCodeAt(index) & 0xfc00) !== 0xdc00) count++;
  return count;
}

/** Whitespace at the end of a text is a piece, without trying every space before it. */
export function trailingSpaceSplitter(): Splitter {
  const isSpace = new RegExp(`^${WHITE_SPACE}$`, 'u');
  return slicedSplitter(function* (text, ends, work) {
    let start = text.length;
    while (start > 0 && isSpace.test(text[start - 1]!)) {
      start--;
      if (work.spend(1)) yield;
    }
    if (start > 0) ends.push(start);
    if (start < text.length) ends.push(text.length);
  });
}

/** Runs of newlines and runs of anything else. */
export function newlineSplitter(): Splitter {
  return patternSplitter(/[^\n]+|\n+/g);
}

function slicedSplitter(splitSliced: Splitter['splitSliced']): Splitter {
  return { split: (text, ends) => finish(splitSliced(text, ends, newSliceCounter())), splitSliced };
}

/** Applies splitters in sequence, each within the pieces of the previous one, so that none matches across a split. */
export function chainSplitters(splitters: readonly Splitter[]): Splitter {
  const [first, ...rest] = splitters as readonly [Splitter, ...Splitter[]];
  if (rest.length === 0) return first;
  return slicedSplitter(function* (text, ends, work) {
    if (text.length === 0) return;
    let current = new IdList(16);
    yield* first.splitSliced(text, current, work);
    for (const splitter of rest) current = yield* splitPieces(text, current, splitter, work);
    ends.pushAll(current.values, current.length);
  });
}

function* splitPieces(text: string, pieces: IdList, splitter: Splitter, work: SliceCounter): Sliced<IdList> {
  const target = new IdList(pieces.length + 16);
  const inner = new IdList();
  let start = 0;
  for (let index = 0; index < pieces.length; index++) {
    const end = pieces.values[index]!;
    if (end - start === 1) {
      target.push(end);
    } else {
      inner.truncate(0);
      const piece = text.slice(start, end);
      if (piece.length > longLength) yield* splitter.splitSliced(piece, inner, work);
      else splitter.split(piece, inner);
      for (let part = 0; part < inner.length; part++) target.push(start + inner.values[part]!);
    }
    if (work.spend(end - start)) yield;
    start = end;
  }
  return target;
}
