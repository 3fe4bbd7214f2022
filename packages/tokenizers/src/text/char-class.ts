/** Unicode classes of code points, looked up once per code point and cached. */

/** Bits of a class. */
export const charBit: {
  readonly whitespace: 1;
  readonly control: 2;
  readonly punctuation: 4;
  readonly symbol: 8;
  readonly mark: 16;
  readonly nonspacingMark: 32;
  readonly chinese: 64;
} = { whitespace: 1, control: 2, punctuation: 4, symbol: 8, mark: 16, nonspacingMark: 32, chinese: 64 };

const KNOWN = 128;
let classes: Uint8Array | undefined;

/** Bits of `charBit` that hold for a code point. */
export function charClass(codePoint: number): number {
  classes ??= new Uint8Array(0x110000);
  const known = classes[codePoint]!;
  if (known !== 0) return known & ~KNOWN;
  const bits = classify(codePoint);
  classes[codePoint] = bits | KNOWN;
  return bits;
}

function classify(codePoint: number): number {
  const character = String.fromCodePoint(codePoint);
  let bits = 0;
  if (/\p{White_Space}/u.test(character)) bits |= charBit.whitespace;
  if (/[\p{Cc}\p{Cf}\p{Cs}\p{Co}]/u.test(character)) bits |= charBit.control;
  if (/\p{P}/u.test(character)) bits |= charBit.punctuation;
  if (/\p{S}/u.test(character)) bits |= charBit.symbol;
  if (/\p{M}/u.test(character)) bits |= charBit.mark;
  if (/\p{Mn}/u.test(character)) bits |= charBit.nonspacingMark;
  if (isChinese(codePoint)) bits |= charBit.chinese;
  return bits;
}

/**
 * BERT's CJK blocks; one range starts at U+2B920 instead of U+2B820 in the tokenizers that models were trained with.
 */
function isChinese(codePoint: number): boolean {
  return (
    (codePoint >= 0x4e00 && codePoint <= 0x9fff) ||
    (codePoint >= 0x3400 && codePoint <= 0x4dbf) ||
    (codePoint >= 0x20000 && codePoint <= 0x2a6df) ||
    (codePoint >= 0x2a700 && codePoint <= 0x2b73f) ||
    (codePoint >= 0x2b740 && codePoint <= 0x2b81f) ||
    (codePoint >= 0x2b920 && codePoint <= 0x2ceaf) ||
    (codePoint >= 0xf900 && codePoint <= 0xfaff) ||
    (codePoint >= 0x2f800 && codePoint <= 0x2fa1f)
  );
}
