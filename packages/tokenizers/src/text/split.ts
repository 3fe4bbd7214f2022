/** Splits text into words with a sequence of regular expressions. */
import { IdList } from '../tables/id-list.js';

/** Appends the end offset of every piece of `text` to `ends`; pieces cover the text. */
export type Splitter = (text: string, ends: IdList) => void;

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
  return (text, ends) => {
    let done = 0;
    pattern.lastIndex = 0;
    for (let match = pattern.exec(text); match !== null; match = pattern.exec(text)) {
      const start = match.index;
      const end = start + match[0].length;
      if (start > done) ends.push(start);
      if (end > start) ends.push(end);
      else pattern.lastIndex += text.codePointAt(start)! > 0xffff ? 2 : 1;
      if (end > done) done = end;
    }
    if (done < text.length) ends.push(text.length);
  };
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
  return (text, ends) => {
    let done = 0;
    const cut = (at: number): void => {
      if (at > done) ends.push(at);
      done = Math.max(done, at);
    };
    run.lastIndex = 0;
    for (let match = run.exec(text); match !== null; match = run.exec(text)) {
      const starts = codePointStarts(match[0]);
      const first = starts.length % 3;
      if (cutsBefore && first === 0) cut(match.index);
      for (let index = first === 0 ? 3 : first; index < starts.length; index += 3) cut(match.index + starts[index]!);
      if (!cutsBefore) cut(match.index + match[0].length);
    }
    cut(text.length);
  };
}

function codePointStarts(text: string): number[] {
  const starts: number[] = [];
  for (let index = 0; index < text.length; index += text.codePointAt(index)! > 0xffff ? 2 : 1) starts.push(index);
  return starts;
}

/** Runs of newlines and runs of anything else. */
export function newlineSplitter(): Splitter {
  return patternSplitter(/[^\n]+|\n+/g);
}

/** Applies splitters in sequence, each within the pieces of the previous one, so that none matches across a split. */
export function chainSplitters(splitters: readonly Splitter[]): Splitter {
  if (splitters.length === 1) return splitters[0]!;
  return (text, ends) => {
    let current = new IdList();
    if (text.length > 0) current.push(text.length);
    let inner = new IdList();
    splitters.forEach((splitter, stage) => {
      const target = new IdList(current.length + 16);
      let start = 0;
      for (let index = 0; index < current.length; index++) {
        const end = current.values[index]!;
        if (stage === 0) {
          splitter(text, target);
        } else if (end - start === 1) {
          target.push(end);
        } else {
          inner.truncate(0);
          splitter(text.slice(start, end), inner);
          for (let piece = 0; piece < inner.length; piece++) target.push(start + inner.values[piece]!);
        }
        start = end;
      }
      current = target;
    });
    inner = new IdList(0);
    ends.pushAll(current.values, current.length);
  };
}
