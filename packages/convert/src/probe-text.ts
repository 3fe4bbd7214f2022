/** Checks whether two tokenizers produce the same ids on a text with all constructs in which tokenizers are known to differ. */
import type { Tokenizer } from '@winnow/tokenizers';

/** Contractions, numbers, spaces, line breaks, combining marks, scripts, code, emoji. */
const probes: readonly string[] = [
  'Hello World! Once upon a time, there was a little dog.',
  "I've been told he's there, WE'LL see; it'd be Fine'S they're",
  '1 22 333 4444 55555 3.14159 12,345 2024-11-21 v1.2.3 x86_64 3\u00d74',
  ' a  b   c    d\te\t\tf \n g\n\nh\r\ni   \n   j     ',
  'foo(bar)[baz]{qux} == !=  <= >= // /* */ #include <x> "a\\n" \'b\' `c` a_b $x ~^|&%@',
  'Gr\u00fc\u00dfe, na\u00efve caf\u00e9 \u00e9cole \u0415\u0449\u0451 \u043e\u0434\u0438\u043d, ' +
    '\u03b1\u03b2\u03b3 \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 ' +
    '\u0939\u093f\u0928\u094d\u0926\u0940',
  '\u4f60\u597d\u4e16\u754c\uff0c\u3053\u3093\u306b\u3061\u306f \ud55c\uad6d\uc5b4 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35',
  '\ud83d\ude80 (normal) \ud83d\ude36\u200d\ud83c\udf2b\ufe0f (multiple emojis) \u2705 \ud83e\udd99\ud83e\udd99',
  'HELLO hello HeLLo iPhone camelCase snake_case UPPER-lower ...... !!!!! ====== \u00a0 \u200b',
  'the mark \u2581 of spaces',
  '',
  ' ',
  '\n',
];

/** Vowel signs of Indic scripts, and Hangul, which GGUF readers split differently for WordPiece. */
const takenApart = /[\u0900-\u0dff\uac00-\ud7a3]/;

/** What GGUF readers split differently from tokenizer.json, by kind of tokenizer. */
const knownDifferences: Readonly<
  Partial<Record<Tokenizer['kind'], { readonly texts: RegExp; readonly notice: string }>>
> = {
  wordpiece: {
    texts: takenApart,
    notice: 'GGUF readers split Hangul and the vowel signs of Indic scripts differently from tokenizer.json',
  },
  unigram: {
    texts: /\u2581/,
    notice: 'GGUF readers split the character U+2581 beside spaces differently from tokenizer.json',
  },
};

/** `'most'`: except for what GGUF readers are known to split differently from tokenizer.json. */
export function agreement(a: Tokenizer, b: Tokenizer): 'all' | 'most' | 'none' {
  const isSame = (text: string): boolean => {
    const options = { addSpecialTokens: false };
    const [first, second] = [a.encode(text, options), b.encode(text, options)];
    return first.length === second.length && first.every((id, index) => id === second[index]);
  };
  const wrong = probes.filter((text) => !isSame(text));
  if (wrong.length === 0) return 'all';
  const known = knownDifferences[a.kind];
  return known !== undefined && wrong.every((text) => known.texts.test(text)) ? 'most' : 'none';
}

/** The notice for an agreement of `'most'`. */
export function differenceNotice({ kind }: Tokenizer): string {
  return knownDifferences[kind]?.notice ?? '';
}
