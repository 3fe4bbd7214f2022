/** A trie of the tokens of a vocabulary by their bytes, laid out so that a walk is one pass over flat arrays. */

import { finish, type Sliced } from '@winnow/tensor';

/** The vocabulary that the trie is built from. */
export interface TokenBytes {
  /** Number of ids, which is the size of the logits; a tokenizer may have fewer. */
  readonly vocabSize: number;
  /**
   * The bytes of a token, or undefined for a token that must not occur in constrained text, such as a control token.
   */
  tokenBytes(id: number): Uint8Array | undefined;
}

/**
 * Nodes in preorder: the subtree of node `n` is `n .. ends[n] - 1`. The root, which has no byte, is omitted; the depth
 * of its children is 0.
 */
export interface TokenTrie {
  readonly vocabSize: number;
  readonly numNodes: number;
  readonly bytes: Uint8Array; // [numNodes]
  readonly depths: Uint16Array; // [numNodes]
  readonly ends: Int32Array; // [numNodes]
  /** Tokens of node `n`: `tokens[firstTokens[n] .. firstTokens[n + 1] - 1]`. */
  readonly firstTokens: Int32Array; // [numNodes + 1]
  readonly tokens: Int32Array;
  /** Number of nodes of the longest token. */
  readonly maxDepth: number;
  /** The bytes of a token; undefined if it is not in the trie. */
  bytesOf(id: number): Uint8Array | undefined;
}

/** Maximum length of a token that depths can represent; longer ones are skipped. */
const maxTokenBytes = 0xffff;

/** Tokens without bytes are skipped: they would not advance the text. Cost: sorting the vocabulary. */
export function createTokenTrie(vocabulary: TokenBytes): TokenTrie {
  return finish(createTokenTrieSliced(vocabulary));
}

/** Tokens between two slices. */
const tokensPerSlice = 4096;

/** The same in slices. */
export function* createTokenTrieSliced({ vocabSize, tokenBytes }: TokenBytes): Sliced<TokenTrie> {
  const texts: (Uint8Array | undefined)[] = [];
  /** Ids by the first two bytes of their tokens. */
  const groups: number[][] = [];
  for (let id = 0; id < vocabSize; id++) {
    if (id % tokensPerSlice === tokensPerSlice - 1) yield;
    const bytes = tokenBytes(id);
    const isInTrie = bytes !== undefined && bytes.length > 0 && bytes.length <= maxTokenBytes;
    texts.push(isInTrie ? bytes : undefined);
    if (!isInTrie) continue;
    const key = bytes[0]! * 257 + (bytes.length === 1 ? 0 : bytes[1]! + 1);
    (groups[key] ??= []).push(id);
  }
  const ids: number[] = [];
  let numSorted = 0;
  for (const group of Object.values(groups)) {
    group.sort((a, b) => compare(texts[a] as Uint8Array, texts[b] as Uint8Array) || a - b);
    for (const id of group) ids.push(id);
    if (ids.length - numSorted < tokensPerSlice) continue;
    numSorted = ids.length;
    yield;
  }
  return yield* trieOf(vocabSize, texts, ids);
}

/** @param ids in the order of their bytes */
function* trieOf(
  vocabSize: number,
  texts: readonly (Uint8Array | undefined)[],
  ids: readonly number[],
): Sliced<TokenTrie> {
  const bytes: number[] = [];
  const depths: number[] = [];
  const ends: number[] = [];
  const firstTokens: number[] = [];
  const path: number[] = []; // shared prefix with the previous token
  let previous: Uint8Array = new Uint8Array(0);
  let maxDepth = 0;
  for (const [position, id] of ids.entries()) {
    if (position % tokensPerSlice === tokensPerSlice - 1) yield;
    const text = texts[id] as Uint8Array;
    let shared = 0;
    while (shared < previous.length && previous[shared] === text[shared]) shared++;
    while (path.length > shared) ends[path.pop() as number] = bytes.length;
    for (let depth = shared; depth < text.length; depth++) {
      path.push(bytes.length);
      bytes.push(text[depth] as number);
      depths.push(depth);
      ends.push(0);
      firstTokens.push(position);
    }
    maxDepth = Math.max(maxDepth, text.length);
    previous = text;
  }
  for (const node of path) ends[node] = bytes.length;
  firstTokens.push(ids.length);
  return {
    vocabSize,
    numNodes: bytes.length,
    bytes: Uint8Array.from(bytes),
    depths: Uint16Array.from(depths),
    ends: Int32Array.from(ends),
    firstTokens: Int32Array.from(firstTokens),
    tokens: Int32Array.from(ids),
    maxDepth,
    bytesOf: (id) => texts[id],
  };
}

function compare(a: Uint8Array, b: Uint8Array): number {
  const length = Math.min(a.length, b.length);
  for (let i = 0; i < length; i++) {
    const order = (a[i] as number) - (b[i] as number);
    if (order !== 0) return order;
  }
  return a.length - b.length;
}
