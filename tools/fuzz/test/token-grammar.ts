/** A vocabulary of bytes and a few words, and texts that grammars constrain. */
import { createTokenTrie, type TokenGrammar, type TokenTrie } from '@winnow/grammar';

const words = ['the', '{"', '":', '"}', '\n\n', '  ', 'true'];
const encoder = new TextEncoder();

export const trie: TokenTrie = createTokenTrie({
  vocabSize: 257 + words.length,
  tokenBytes: (id) => (id < 256 ? Uint8Array.of(id) : id === 256 ? undefined : encoder.encode(words[id - 257])),
});

/** Follows the first allowed tokens, and every third one. */
export function follow(grammar: TokenGrammar): void {
  const matcher = grammar.start();
  for (let step = 0; step < 12 && !matcher.isComplete; step++) {
    const { bits } = matcher.mask();
    const allowed: number[] = [];
    for (let id = 0; id < trie.vocabSize; id++) if (((bits[id >> 5] as number) >> (id & 31)) & 1) allowed.push(id);
    const next = allowed[(step * 3) % Math.max(1, allowed.length)];
    if (next === undefined || !matcher.fork().accept(next)) return;
    matcher.accept(next);
  }
}
