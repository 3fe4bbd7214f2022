/**
 * Tokens inside free text, such as a JSON string: where most characters lead to the same state, every token that consists
 * of them is allowed, and only tokens with other characters need a walk. Which tokens these are depends on the vocabulary
 * alone, and is computed once per set of characters.
 */
import { LruMap } from '@winnow/tensor';
import { secondBytes, type FreeText } from './free-text.js';
import type { TokenTrie } from './token-trie.js';

/** Tokens by the characters of free text. */
export interface TextRun {
  /** Tokens that consist of these characters; the last one may be incomplete. */
  readonly bits: Uint32Array; // [ceil(vocabSize / 32)]
  /** Nodes whose byte is the first that is not of these characters, or is beyond the last one, ascending. */
  readonly exits: Int32Array;
  /** Characters before each of them. */
  readonly numBefore: Uint8Array;
  /** The exits, each as `~node`, and the nodes that lead to them, in preorder. Computed on first use. */
  paths?: Int32Array;
}

/** Maximum number of runs that are kept per vocabulary, each of up to about 400 KB. */
const maxRuns = 16;
const runsOfTries = new WeakMap<TokenTrie, LruMap<string, TextRun>>();

export function textRunOf(trie: TokenTrie, text: FreeText): TextRun {
  const runs = runsOfTries.get(trie) ?? new LruMap<string, TextRun>();
  runsOfTries.set(trie, runs);
  const key = `${text.ascii.join('')}${text.leads.join('')}${text.maxLength}`;
  let run = runs.get(key);
  if (run === undefined) {
    runs.set(key, (run = computeRun(trie, text)));
    runs.evict(maxRuns);
  }
  return run;
}

/** The exits and the nodes that lead to them, see `TextRun`. */
export function exitPathsOf({ numNodes, ends }: TokenTrie, run: TextRun): Int32Array {
  if (run.paths !== undefined) return run.paths;
  const { exits } = run;
  const paths: number[] = [];
  for (let node = 0, next = 0; node < numNodes && next < exits.length;) {
    const exit = exits[next]!;
    if (exit >= ends[node]!) {
      node = ends[node]!;
      continue;
    }
    paths.push(exit === node ? ~node : node);
    if (exit === node) next++;
    node = exit === node ? ends[node]! : node + 1;
  }
  return (run.paths = Int32Array.from(paths));
}

export function setBit(bits: Uint32Array, id: number): void {
  bits[id >> 5] = bits[id >> 5]! | (1 << (id & 31));
}

/** No character is incomplete; otherwise the number of missing bytes and the range of the next one. */
const complete = 0x8000_0000;

function computeRun(trie: TokenTrie, text: FreeText): TextRun {
  const { maxLength } = text;
  const { numNodes, bytes, depths, ends, firstTokens, tokens, vocabSize, maxDepth } = trie;
  const bits = new Uint32Array(Math.ceil(vocabSize / 32));
  const exits: number[] = [];
  const numBefore: number[] = [];
  // by depth: what is missing before the byte there, and how many characters are complete
  const pending = new Uint32Array(maxDepth + 1).fill(complete);
  const counts = new Uint32Array(maxDepth + 1);
  for (let node = 0; node < numNodes;) {
    const depth = depths[node]!;
    const [byte, before, count] = [bytes[node]!, pending[depth]!, counts[depth]!];
    const isFirst = before === complete;
    const isBeyond = isFirst && count === maxLength;
    const next = isFirst ? afterCharacter(byte, text) : insideCharacter(before, byte);
    if (next === 0 || isBeyond) {
      if (isFirst) {
        exits.push(node);
        numBefore.push(count);
      }
      node = ends[node]!;
      continue;
    }
    pending[depth + 1] = next;
    counts[depth + 1] = next === complete ? count + 1 : count;
    for (let at = firstTokens[node]!; at < firstTokens[node + 1]!; at++) setBit(bits, tokens[at]!);
    node++;
  }
  return { bits, exits: Int32Array.from(exits), numBefore: Uint8Array.from(numBefore) };
}

/** 0 for a byte that is not of the text. */
function afterCharacter(byte: number, { ascii, leads }: FreeText): number {
  if (byte < 128) return ascii[byte] === 1 ? complete : 0;
  if (leads[byte] === 0) return 0;
  const [first, last] = secondBytes(byte);
  return expecting(byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3, first, last);
}

function expecting(numBytes: number, first: number, last: number): number {
  return (numBytes << 16) | (first << 8) | last;
}

function insideCharacter(pending: number, byte: number): number {
  if (byte < ((pending >> 8) & 0xff) || byte > (pending & 0xff)) return 0;
  const numBytes = (pending >> 16) - 1;
  return numBytes === 0 ? complete : expecting(numBytes, 0x80, 0xbf);
}
