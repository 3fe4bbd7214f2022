/**
 * Tokens inside free text, such as a JSON string: where most characters lead to the same state, every token that consists
 * of them is allowed, and only tokens with other characters need a walk. Which tokens these are depends on the vocabulary
 * alone, and is computed once per set of characters.
 */
import { LruMap } from '@winnow/tensor';
import { deadState } from '../automaton/automaton.js';
import type { TokenTrie } from './token-trie.js';

/** Tokens by the characters of free text. */
export interface TextRun {
  /** Tokens that consist of these characters; the last one may be incomplete. */
  readonly bits: Uint32Array; // [ceil(vocabSize / 32)]
  /** Nodes whose byte is the first that is not of these characters, or is beyond the last one, ascending. */
  readonly exits: Int32Array;
  /** Characters before each of them. */
  readonly numBefore: Uint8Array;
}

/** Characters that all lead from each state to the next one. */
export interface FreeText {
  /** By code, 1 for those of the text. */
  readonly ascii: Uint8Array; // [128]
  /** All characters beyond ASCII, or none. */
  readonly hasOthers: boolean;
  /** The states after 0, 1, 2 ... characters: where they are counted, all differ. */
  readonly states: readonly number[]; // [numCharacters + 1]
}

/** A step by one byte: the next state, or `deadState`. */
type Step = (state: number, byte: number) => number;

/** Fewer different characters are not worth it. */
const minCharacters = 26;
/** Longer tokens are walked from here on. */
const numCharacters = 16;

/** Undefined where few characters lead to the same state, or only few times. */
export function freeTextOf(state: number, step: Step): FreeText | undefined {
  const next = step(state, 0x65); // e
  if (next === deadState) return undefined;
  const ascii = Uint8Array.from({ length: 128 }, (_, code) => (step(state, code) === next ? 1 : 0));
  if (ascii.reduce((sum, is) => sum + is, 0) < minCharacters) return undefined;
  const hasOthers = takesOthers(state, next, step);
  const states = [state];
  for (let from = state, to = next; states.push(to) <= numCharacters; from = to, to = step(from, 0x65)) {
    if (to === deadState) return undefined;
    if (from === to) continue;
    if (!ascii.every((is, code) => is === 0 || step(from, code) === to)) return undefined;
    if (hasOthers && !takesOthers(from, to, step)) return undefined;
  }
  return { ascii, hasOthers, states };
}

/** Whether the UTF-8 encodings of all characters beyond ASCII lead from one state to another, and no other bytes do. */
function takesOthers(state: number, next: number, step: Step): boolean {
  const leadsTo = (from: number, first: number, last: number, to: number): boolean => {
    for (let byte = first; byte <= last; byte++) if (step(from, byte) !== to) return false;
    return true;
  };
  /** Whether exactly these bytes may continue. */
  const continues = (from: number, first: number, last: number, to: number): boolean =>
    from !== deadState &&
    leadsTo(from, first, last, to) &&
    leadsTo(from, 0x80, first - 1, deadState) &&
    leadsTo(from, last + 1, 0xbf, deadState);
  const [one, two, three] = [step(state, 0xc2), step(state, 0xe1), step(state, 0xf1)]; // bytes that are missing
  return (
    leadsTo(state, 0x80, 0xc1, deadState) &&
    leadsTo(state, 0xc2, 0xdf, one) &&
    leadsTo(state, 0xe1, 0xec, two) &&
    leadsTo(state, 0xee, 0xef, two) &&
    leadsTo(state, 0xf1, 0xf3, three) &&
    leadsTo(state, 0xf5, 0xff, deadState) &&
    continues(one, 0x80, 0xbf, next) &&
    continues(two, 0x80, 0xbf, one) &&
    continues(three, 0x80, 0xbf, two) &&
    continues(step(state, 0xe0), 0xa0, 0xbf, one) &&
    continues(step(state, 0xed), 0x80, 0x9f, one) &&
    continues(step(state, 0xf0), 0x90, 0xbf, two) &&
    continues(step(state, 0xf4), 0x80, 0x8f, two)
  );
}

/** Maximum number of sets of characters that are kept per vocabulary. */
const maxRuns = 8;
const runsOfTries = new WeakMap<TokenTrie, LruMap<string, TextRun>>();

export function textRunOf(trie: TokenTrie, text: FreeText): TextRun {
  const runs = runsOfTries.get(trie) ?? new LruMap<string, TextRun>();
  runsOfTries.set(trie, runs);
  const key = `${text.ascii.join('')}${text.hasOthers}`;
  let run = runs.get(key);
  if (run === undefined) {
    runs.set(key, (run = computeRun(trie, text)));
    runs.evict(maxRuns);
  }
  return run;
}

/** No character is incomplete; otherwise the number of missing bytes and the range of the next one. */
const complete = 0x8000_0000;

function computeRun(trie: TokenTrie, text: FreeText): TextRun {
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
    const isBeyond = isFirst && count === numCharacters;
    const next = isFirst ? afterCharacter(byte, text) : insideCharacter(before, byte);
    if (next === 0 || isBeyond) {
      if (isBeyond || (isFirst && (byte < 128 || !text.hasOthers))) {
        exits.push(node);
        numBefore.push(count);
      }
      node = ends[node]!;
      continue;
    }
    pending[depth + 1] = next;
    counts[depth + 1] = next === complete ? count + 1 : count;
    for (let at = firstTokens[node]!; at < firstTokens[node + 1]!; at++)
      bits[tokens[at]! >> 5]! |= 1 << (tokens[at]! & 31);
    node++;
  }
  return { bits, exits: Int32Array.from(exits), numBefore: Uint8Array.from(numBefore) };
}

/** 0 for a byte that is not of the text. */
function afterCharacter(byte: number, { ascii, hasOthers }: FreeText): number {
  if (byte < 128) return ascii[byte] === 1 ? complete : 0;
  if (!hasOthers || byte < 0xc2 || byte > 0xf4) return 0;
  if (byte < 0xe0) return expecting(1, 0x80, 0xbf);
  if (byte < 0xf0) return expecting(2, byte === 0xe0 ? 0xa0 : 0x80, byte === 0xed ? 0x9f : 0xbf);
  return expecting(3, byte === 0xf0 ? 0x90 : 0x80, byte === 0xf4 ? 0x8f : 0xbf);
}

function expecting(numBytes: number, first: number, last: number): number {
  return (numBytes << 16) | (first << 8) | last;
}

function insideCharacter(pending: number, byte: number): number {
  if (byte < ((pending >> 8) & 0xff) || byte > (pending & 0xff)) return 0;
  const numBytes = (pending >> 16) - 1;
  return numBytes === 0 ? complete : expecting(numBytes, 0x80, 0xbf);
}
