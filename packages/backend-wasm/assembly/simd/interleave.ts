/** Shuffles that interleave bytes, pairs of bytes or words of several rows. */

/** The first eight bytes of two rows, interleaved. */
/* @inline */ export function lowBytes(a: v128, b: v128): v128 {
  return i8x16.shuffle(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

/** The last eight. */
/* @inline */ export function highBytes(a: v128, b: v128): v128 {
  return i8x16.shuffle(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

/** The first four pairs of bytes of two pairs of rows, interleaved. */
/* @inline */ export function lowPairs(ab: v128, cd: v128): v128 {
  return i8x16.shuffle(ab, cd, 0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23);
}

/** The last four. */
/* @inline */ export function highPairs(ab: v128, cd: v128): v128 {
  return i8x16.shuffle(ab, cd, 8, 9, 24, 25, 10, 11, 26, 27, 12, 13, 28, 29, 14, 15, 30, 31);
}

/** The first two words of 4 bytes of two rows, interleaved. */
/* @inline */ export function lowWords(a: v128, b: v128): v128 {
  return i8x16.shuffle(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
}

/** The last two. */
/* @inline */ export function highWords(a: v128, b: v128): v128 {
  return i8x16.shuffle(a, b, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
}

/** The low halves of two vectors. */
/* @inline */ export function lowTwos(ab: v128, cd: v128): v128 {
  return i8x16.shuffle(ab, cd, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
}

/** The high halves. */
/* @inline */ export function highTwos(ab: v128, cd: v128): v128 {
  return i8x16.shuffle(ab, cd, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
}
