/** Characters for strings of property tests. */

/** The largest argument of `characterAt`. */
export const lastCharacter = 0x10f7ff;

/**
 * A character by its place among all code points that are no surrogates, as the `unit` of strings:
 * `fc.string({ unit: fc.nat(lastCharacter).map(characterAt) })`. The unit `binary` of fast-check draws the same ones, and
 * takes seconds and 100 MB for a table of them.
 */
export function characterAt(place: number): string {
  return String.fromCodePoint(place < 0xd800 ? place : place + 0x800);
}
