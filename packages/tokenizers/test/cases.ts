/**
 * Texts and vocabularies of the generated vectors. Plain TypeScript without imports, which `scripts/` can run directly, so
 * that tests and reference implementations see the same input.
 */

/**
 * A vocabulary in which any two bytes merge, so that every different split of a text changes the ids.
 * @param texts keeps only the merges of bytes that are neighbors in one of these texts, written in any way: their ids stay
 */
export function pairVocabulary(texts?: readonly string[]): { tokens: string[]; merges: string[] } {
  const characters: string[] = [];
  let substitutes = 0;
  for (let byte = 0; byte < 256; byte++) {
    const printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    characters.push(String.fromCharCode(printable ? byte : 0x100 + substitutes++));
  }
  const tokens = [...characters];
  for (const left of characters) for (const right of characters) tokens.push(left + right);
  tokens.push('<|endoftext|>');
  // The odd factor makes this a permutation of all pairs.
  const ranked = Array.from({ length: 65536 }, (_, rank) => (rank * 40503 + 12345) & 0xffff);
  const used = texts === undefined ? undefined : neighborsIn(texts);
  const merges = ranked
    .filter((pair) => used?.has(pair) ?? true)
    .map((pair) => `${characters[pair >> 8]} ${characters[pair & 255]}`);
  return { tokens, merges };
}

/** Pairs of neighboring bytes of texts, also in other normal forms and cases, and behind a space. */
function neighborsIn(texts: readonly string[]): ReadonlySet<number> {
  const pairs = new Set<number>();
  for (const text of texts) {
    const forms = ['NFC', 'NFD', 'NFKC', 'NFKD'].map((form) => text.normalize(form));
    const replaced = text.replaceAll(/ {2,}/g, () => ' $1'); // by the case `replace`
    const ways = [text, replaced, ...forms].flatMap((way) => [way, way.toLowerCase(), way.replaceAll(/\p{M}/gu, '')]);
    for (const way of ways) {
      const bytes = new TextEncoder().encode(` ${way} `);
      for (let at = 1; at < bytes.length; at++) pairs.add((bytes[at - 1]! << 8) | bytes[at]!);
    }
  }
  return pairs;
}

const alphabets = [
  'abcXYZ',
  "'s'S'll'RE've'D'm't",
  '0123456789',
  '    ',
  '\n\r\t \u000b\u000c',
  '.,!?;:-/\\()[]{}<>=+*&^%$#@~`|"_',
  '\u00e9\u00c0\u00df\u00f1\u00c7\u0153\u0152\u0131\u0130\u212a\u212b',
  '\u043f\u0420\u0438\u0412\u0415\u0422\u0416\u03a3\u03c3',
  '\u4e2d\u6587\u5b57\u6f22\u3005\u3007',
  '\u3072\u3089\u30ab\u30bf\u30ca\u30fc',
  '\ud55c\uad6d\uc5b4\uac00\uac01',
  '\u0e01\u0e32\u0e1e\u0e22\u0e4c\u0e33',
  '\u1780\u17b6\u1793\u17cb\u178f\u17c2',
  '\u0939\u093f\u0928\u094d\u0926\u0940',
  '\u0627\u0631\u062f\u0648\u0661\u0662\u0663',
  '\u0300\u0301\u20e3\ufe0f',
  '\u{1f600}\u{1f999}\u{1f469}\u200d\u{1f467}\u{1f3fd}',
  '\u00a0\u1680\u2003\u2028\u202f\u3000\u0085\u200b\ufeff',
  '\u00bd\u00b2\u2167\u2460\u0663\u09ea',
  '\u201c\u201d\u2018\u2019\u2026\u2014\u3001\u3002\uff0c\uff01\uff1f\u00b7',
  '\u01c5\u02b0\u00aa\u00ba\u{1d400}\u{1d41a}\u{10400}\u{10428}',
  '\u0001\u001c\u007f\u00ad\ue000',
  '\u10a0\u10d0\u01c0\u0294\u1d6b\u2128\u212d\u2183\ua640\ufb00\uff21\uff5a',
  '\u20ac\u00a3\u00a5\u00a9\u00ae\u00b1\u00d7\u00f7',
  '\uff08\uff09\uff3b\uff3d\uff5e\uffe5',
  '\u{20000}\u{2a700}\uf900',
];

const phrases = [
  ...['Hello', 'world', "I'm", "DON'T", 'camelCase', 'HTTPServer', 'x1y2', '3.14', '1234567', '  ', '\n\n', ' \n '],
  ...['\t\t', "you'Ll", "'tis", '<sentinel:12>', 'IMGIMGABCDZ', 'https://a.b/c?d=e', 'foo_bar', '....', '!!!\n\n'],
  ...['  x', '    ', '   \n   y', '12 345', '1,234,567', 'a/b//\n', 'x/\n', ' a b c', '\u039f\u0394\u039f\u03a3 '],
  ...['<s>', '<l>', '<r>', ' <l>', '<r> ', 'hello', 'WORLD\n', 'ab', '[MASK]', '</s>'],
];

/** Deterministic texts that mix scripts, white space, digits, marks and words. */
export function mixedTexts(count: number): string[] {
  let state = 0x2545f491;
  const random = (below: number): number => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
  const letters = alphabets.map((alphabet) => [...alphabet]);
  return Array.from({ length: count }, () => {
    let text = '';
    for (let parts = 2 + random(14); parts > 0; parts--) {
      if (random(5) < 2) {
        text += phrases[random(phrases.length)]!;
        continue;
      }
      const alphabet = letters[random(letters.length)]!;
      for (let units = 1 + random(4); units > 0; units--) text += alphabet[random(alphabet.length)]!;
      if (random(3) === 0) text += ' ';
    }
    return text;
  });
}

/** 32-bit FNV-1a of a list of ids, as eight hexadecimal digits. */
export function idsHash(ids: ArrayLike<number>): string {
  let hash = 0x811c9dc5;
  for (let index = 0; index < ids.length; index++) {
    for (let shift = 0; shift < 32; shift += 8) {
      hash = Math.imul(hash ^ ((ids[index]! >>> shift) & 255), 0x01000193);
    }
  }
  return (hash >>> 0).toString(16).padStart(8, '0');
}
