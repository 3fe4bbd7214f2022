/** Small vocabularies and random walks under a mask. */
import { createTokenTrie, type GrammarMatcher, type TokenTrie } from '../src/index.js';

/** Ids are the 256 bytes, then these texts, then the end token. */
export function vocabularyOf(texts: readonly string[]): {
  trie: TokenTrie;
  endToken: number;
  bytesOf: (id: number) => Uint8Array;
  /** Whether a token closes something, or is a whole name. */
  isClosing: (id: number) => boolean;
} {
  const encoder = new TextEncoder();
  const all = [
    ...Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte)),
    ...texts.map((text) => encoder.encode(text)),
  ];
  const endToken = all.length;
  const trie = createTokenTrie({ vocabSize: all.length + 1, tokenBytes: (id) => all[id] });
  const closing = new Map<number, boolean>();
  const isClosing = (id: number): boolean => {
    const known =
      closing.get(id) ?? /^(?:["\]}>0]|"\w+":)$/.test(String.fromCharCode(...(all[id] ?? new Uint8Array(0))));
    closing.set(id, known);
    return known;
  };
  return { trie, endToken, bytesOf: (id) => all[id] as Uint8Array, isClosing };
}

export function maskIds(matcher: GrammarMatcher): number[] {
  const { bits, numTokens } = matcher.mask();
  const ids: number[] = [];
  for (let word = 0; word < bits.length; word++) {
    for (let left = bits[word] as number; left !== 0; left &= left - 1)
      ids.push(word * 32 + 31 - Math.clz32(left & -left));
  }
  if (ids.length !== numTokens) throw new Error(`${ids.length} bits, ${numTokens} counted`);
  return ids;
}

/** Decodes UTF-8; throws if it is invalid. */
export function textOf(pieces: readonly Uint8Array[]): string {
  const bytes = Uint8Array.from(pieces.flatMap((piece) => [...piece]));
  return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
}

export interface Sample {
  readonly text: string;
  readonly isEnded: boolean;
}

/**
 * A random text under the mask. After `patience` tokens, ends as soon as it may and prefers closing characters and names
 * that are whole tokens.
 * @param random uniform in [0, 1)
 */
export function sampleText(
  matcher: GrammarMatcher,
  { endToken, bytesOf, isClosing }: ReturnType<typeof vocabularyOf>,
  random: () => number,
  patience = 60,
  maxTokens = 3000,
): Sample {
  const pieces: Uint8Array[] = [];
  for (let count = 0; count < maxTokens; count++) {
    const ids = maskIds(matcher);
    if (ids.length === 0) throw new Error(`nothing may follow ${JSON.stringify(textOf(pieces))}`);
    const mayEnd = ids.includes(endToken);
    if (mayEnd !== matcher.canEnd) throw new Error('the end token and canEnd differ');
    if (mayEnd && (count > patience || random() < 0.2 || ids.length === 1))
      return { text: textOf(pieces), isEnded: true };
    const closing = count > patience ? ids.filter(isClosing) : [];
    const candidates = closing.length > 0 ? closing : ids.filter((id) => id !== endToken);
    const id = candidates[Math.floor(random() * candidates.length)] as number;
    if (!matcher.accept(id)) throw new Error(`token ${id} of the mask is refused`);
    pieces.push(bytesOf(id));
  }
  return { text: '', isEnded: false };
}
