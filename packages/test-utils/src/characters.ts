/** Characters for strings of property tests. */

/** The largest argument of `characterAt`. */
export const lastCharacter = 0x10f7ff;

/**
 * The character at a position among all code points except surrogates, as the `unit` of strings:
 * `fc.string({ unit: fc.nat(lastCharacter).map(characterAt) })`. The unit `binary` of fast-check draws the same characters,
 * but takes seconds and 100 MB for a table of them.
 */
export function characterAt(place: number): string {
  return String.fromCodePoint(place < 0xd800 ? place : place + 0x800);
}
