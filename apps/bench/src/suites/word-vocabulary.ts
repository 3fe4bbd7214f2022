/** A vocabulary of bytes, punctuation and synthetic words, and its tokenizer. */
import type { TokenBytes, TokenTrie } from '@winnow/grammar';
import { createRng } from '@winnow/tensor';

/** Greedy longest-match tokens, as a model would usually generate them. */
export function tokenize(source: string, trie: TokenTrie): number[] {
  const bytes = new TextEncoder().encode(source);
  const ids: number[] = [];
  for (let at = 0; at < bytes.length;) {
    let best = -1;
    let end = at;
    for (let node = 0, last = trie.numNodes, i = at; node < last && i < bytes.length;) {
      if (trie.bytes[node] !== bytes[i]) {
        node = trie.ends[node]!;
        continue;
      }
      i++;
      if (trie.firstTokens[node]! < trie.firstTokens[node + 1]!) {
        best = trie.tokens[trie.firstTokens[node]!]!;
        end = i;
      }
      last = trie.ends[node]!;
      node++;
    }
    if (best < 0) throw new Error('the vocabulary has no token for a byte');
    ids.push(best);
    at = end;
  }
  return ids;
}

/** Pairs of punctuation characters, or a space and one of them, as in vocabularies of models. */
export function pairsOfSigns(): readonly string[] {
  const signs = Array.from('!"#$%&\'()*+,-./:;<=>?@[\\]^_`{|}~');
  return [' ', ...signs].flatMap((first) => signs.map((second) => first + second));
}

/** The last id is the end token, which has no bytes. */
export function vocabularyOf(size: number, moreTexts: readonly string[] = []): TokenBytes {
  const rng = createRng(7);
  const pick = (from: readonly string[]): string => from[Math.floor(rng.nextFloat() * from.length)]!;
  const onsets = ['b', 'c', 'd', 'f', 'g', 'h', 'l', 'm', 'n', 'p', 'r', 's', 't', 'st', 'tr', 'th', 'ch', 'w', ''];
  const vowels = ['a', 'e', 'i', 'o', 'u', 'ea', 'ou', 'é'];
  const codas = ['', '', 'n', 'r', 's', 't', 'ng', 'l', 'nd', 'st'];
  const signs = [
    '"',
    '":',
    '": ',
    '",',
    '", "',
    '{"',
    '"}',
    '[',
    ']',
    '],',
    '}}',
    ', ',
    '. ',
    '://',
    '0',
    '19',
    '18',
    '20',
    '\n  ',
  ];
  const texts = new Set<string>([...signs, ...moreTexts]);
  for (let numSyllables = 1; texts.size < size - 257; numSyllables = 1 + Math.floor(rng.nextFloat() * 3)) {
    let word = pick(['', ' ', ' ', ' ']);
    for (let i = 0; i < numSyllables; i++) word += pick(onsets) + pick(vowels) + pick(codas);
    texts.add(rng.nextFloat() < 0.15 ? word.toUpperCase() : word);
  }
  const all = [...texts].slice(0, size - 257).map((word) => new TextEncoder().encode(word));
  return {
    vocabSize: size,
    tokenBytes: (id) => (id < 256 ? Uint8Array.of(id) : id === size - 1 ? undefined : all[id - 256]),
  };
}
