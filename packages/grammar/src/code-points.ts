/** Sets of Unicode scalar values as ascending, non-adjacent ranges. Surrogates are never members. */
import { maxCodePoint, type CodePointRange } from './grammar.js';

export type CodePoints = readonly CodePointRange[];

/** All characters. */
export const allCodePoints: CodePoints = [
  [0, 0xd7ff],
  [0xe000, maxCodePoint],
];

/** The set of arbitrary ranges. */
export function normalize(ranges: readonly CodePointRange[]): CodePoints {
  const pieces: [number, number][] = [];
  for (const [first, last] of ranges) {
    for (const [lowest, highest] of allCodePoints) {
      const begin = Math.max(first, lowest);
      const end = Math.min(last, highest);
      if (begin <= end) pieces.push([begin, end]);
    }
  }
  pieces.sort((a, b) => a[0] - b[0]);
  const merged: [number, number][] = [];
  for (const piece of pieces) {
    const previous = merged.at(-1);
    // the ranges around the surrogates are not merged
    if (previous !== undefined && piece[0] <= previous[1] + 1) previous[1] = Math.max(previous[1], piece[1]);
    else merged.push(piece);
  }
  return merged;
}

export function complement(set: CodePoints): CodePoints {
  const gaps: CodePointRange[] = [];
  let next = 0;
  for (const [first, last] of set) {
    if (first > next) gaps.push([next, first - 1]);
    next = last + 1;
  }
  if (next <= maxCodePoint) gaps.push([next, maxCodePoint]);
  return normalize(gaps);
}

export function intersect(a: CodePoints, b: CodePoints): CodePoints {
  const common: CodePointRange[] = [];
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    const [firstA, lastA] = a[i] as CodePointRange;
    const [firstB, lastB] = b[j] as CodePointRange;
    const begin = Math.max(firstA, firstB);
    const end = Math.min(lastA, lastB);
    if (begin <= end) common.push([begin, end]);
    if (lastA < lastB) i++;
    else j++;
  }
  return common;
}

export function difference(a: CodePoints, b: CodePoints): CodePoints {
  return intersect(a, complement(b));
}

export function hasCodePoint(set: CodePoints, codePoint: number): boolean {
  return set.some(([first, last]) => codePoint >= first && codePoint <= last);
}
