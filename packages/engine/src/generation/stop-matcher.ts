/** Finds stop sequences in streamed text and holds back what may be the start of one. */
import { ArgumentError } from '@winnow/tensor';

export interface StopMatcher {
  /** Adds text and returns what is certain to be output. After a match it returns nothing. */
  push(text: string): string;
  /** Ends the stream and returns what was held back. */
  flush(): string;
  readonly isMatched: boolean;
}

/** @throws {ArgumentError} for an empty stop sequence, and for a text instead of a list */
export function createStopMatcher(stops: readonly string[]): StopMatcher {
  const wrong = Array.isArray(stops) ? stops.find((stop) => typeof stop !== 'string' || stop === '') : stops;
  if (wrong !== undefined) {
    const expected = 'a list of non-empty texts';
    throw new ArgumentError({ argument: 'stop', expected, actual: JSON.stringify(wrong) });
  }
  const maxHeld = Math.max(0, ...stops.map((stop) => stop.length - 1));
  let held = '';
  let isMatched = false;
  return {
    get isMatched(): boolean {
      return isMatched;
    },
    push(text): string {
      if (isMatched) return '';
      const all = held + text;
      const starts = stops.map((stop) => all.indexOf(stop)).filter((start) => start >= 0);
      if (starts.length > 0) {
        isMatched = true;
        held = '';
        return all.slice(0, Math.min(...starts));
      }
      let begin = Math.max(0, all.length - maxHeld);
      while (begin < all.length && !stops.some((stop) => stop.startsWith(all.slice(begin)))) begin++;
      held = all.slice(begin);
      return all.slice(0, begin);
    },
    flush(): string {
      const rest = held;
      held = '';
      return rest;
    },
  };
}
