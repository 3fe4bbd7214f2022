/** Which characters may follow a state, and where they lead to. */
import { deadState } from '../automaton/automaton.js';

/** Characters of which any text may follow. */
export interface FreeText {
  /** By code, 1 for those of the text. */
  readonly ascii: Uint8Array; // [128]
  /** By first byte, 1 where all characters beyond ASCII with this byte are of the text. */
  readonly leads: Uint8Array; // [256]
  /** Number of characters that may follow; longer tokens are walked from there on. */
  readonly maxLength: number;
  /** How many kinds of characters there are, roughly: first bytes count as much as ASCII characters. */
  readonly size: number;
}

/** Characters that all lead from each state to the next one. */
export interface UniformText extends FreeText {
  /** The states after 0, 1, 2 ... characters: where they are counted, all differ. */
  readonly states: readonly number[]; // [maxLength + 1]
}

/** The automaton that is explored. */
export interface Steps {
  /** The next state, or `deadState`. */
  step(state: number, byte: number): number;
  /** Work so far, which is compared with the limits below. */
  numSteps(): number;
}

/** Nearly every text may have an e. */
export const usualCharacter = 0x65;

/** Fewer different characters are not worth it. */
const minCharacters = 26;
/** Longer tokens are walked from here on. */
const maxCharacters = 16;
/** So few characters in a row are not worth it, either. */
const minLength = 3;
/**
 * Classes such as `\p{L}` have thousands of states for the bytes of a character. What is not known after so much work
 * is walked, which is correct in any case; all together is a tenth of the budget of a mask.
 */
const maxLeadSteps = 4000;
const maxUniformSteps = 50_000;
const maxOpenSteps = 150_000;

function sum(flags: Uint8Array): number {
  let total = 0;
  for (const flag of flags) total += flag;
  return total;
}

/** Whether all flags of a part are set. */
function includes(flags: Uint8Array, part: Uint8Array): boolean {
  for (let i = 0; i < part.length; i++) if (part[i]! > flags[i]!) return false;
  return true;
}

/** Undefined where few characters lead to the same state, or only few times. */
export function uniformTextOf(state: number, steps: Steps): UniformText | undefined {
  const limit = steps.numSteps() + maxUniformSteps;
  const next = steps.step(state, usualCharacter);
  if (next === deadState) return undefined;
  const ascii = new Uint8Array(128);
  let numAscii = 0;
  for (let code = 0; code < 128; code++) {
    if (steps.step(state, code) !== next) continue;
    ascii[code] = 1;
    numAscii++;
  }
  if (numAscii < minCharacters) return undefined;
  const leads = leadsOf(state, next, steps);
  const states = [state];
  for (
    let from = state, to = next, checked = deadState;
    states.length <= maxCharacters && steps.numSteps() < limit;
    from = to, to = steps.step(from, usualCharacter)
  ) {
    if (from !== checked && !isText(from, to, ascii, leads, steps)) break;
    checked = from;
    states.push(to);
  }
  const maxLength = states.length - 1;
  return maxLength < minLength ? undefined : { ascii, leads, maxLength, states, size: numAscii + sum(leads) };
}

/** Whether all characters of a text lead from one state to another. */
function isText(from: number, to: number, ascii: Uint8Array, leads: Uint8Array, steps: Steps): boolean {
  if (to === deadState) return false;
  for (let code = 0; code < 128; code++) if (ascii[code] === 1 && steps.step(from, code) !== to) return false;
  return includes(leadsOf(from, to, steps, leads), leads);
}

/** Printable ASCII characters that stand for themselves in a JSON string. */
const printable = Uint8Array.from({ length: 128 }, (_, code) => (code < 0x20 || code === 0x7f ? 0 : 1));
for (const char of '"\\') printable[char.charCodeAt(0)] = 0;
/** The largest size of an open text: all printable characters, and all first bytes. */
export const openTextSize: number = sum(printable) + (0xf4 - 0xc2 + 1);

const noLeads = new Uint8Array(256);
/** States beyond which a walk is quicker. */
const maxOpenStates = 48;

/**
 * Text that leads to several states, none of which rejects a character: that of a pattern that may match anywhere.
 * @returns undefined where a character is rejected, too many states are reached, or this takes too much work
 */
export function openTextOf(state: number, steps: Steps): FreeText | undefined {
  const limit = steps.numSteps() + maxOpenSteps;
  const found = new Set([state]);
  let leads: Uint8Array | undefined;
  let end = 1; // of those that as many characters lead to, or fewer
  let [index, length] = [0, 0];
  for (const from of found) {
    if (index++ === end) {
      if (++length === maxCharacters) break;
      end = found.size;
    }
    for (let code = 0x20; code < 0x7f; code++) {
      if (printable[code] === 0) continue;
      const next = steps.step(from, code);
      if (next === deadState) return undefined;
      found.add(next);
    }
    const other = steps.step(steps.step(from, 0xc3), 0xa9); // after é
    const own = other === deadState ? noLeads : leadsOf(from, other, steps, leads);
    leads = leads === undefined ? own : leads.map((flag, byte) => flag & own[byte]!);
    if (other !== deadState) found.add(other);
    if (found.size > maxOpenStates || steps.numSteps() > limit) return undefined;
  }
  const all = leads ?? noLeads;
  return { ascii: printable, leads: all, maxLength: maxCharacters, size: sum(printable) + sum(all) };
}

/** The state to which most printable ASCII characters lead, or `deadState`. */
export function usualSuccessor(state: number, steps: Steps): number {
  const numCharacters = new Map<number, number>();
  let [usual, most] = [deadState, 0];
  for (let code = 0x20; code < 0x7f; code++) {
    const next = steps.step(state, code);
    if (next === deadState) continue;
    const count = (numCharacters.get(next) ?? 0) + 1;
    numCharacters.set(next, count);
    if (count > most) [usual, most] = [next, count];
  }
  return usual;
}

/**
 * First bytes of which all characters lead from one state to another.
 * @param among those of interest; without it, the first ones, as far as little work tells
 */
function leadsOf(state: number, next: number, steps: Steps, among?: Uint8Array): Uint8Array {
  const leads = new Uint8Array(256);
  const limit = among === undefined ? steps.numSteps() + maxLeadSteps : Infinity;
  let before = deadState;
  for (let lead = 0xc2; lead <= 0xf4 && steps.numSteps() < limit; lead++) {
    if (among !== undefined && among[lead] === 0) {
      before = deadState;
      continue;
    }
    const to = steps.step(state, lead);
    const numBytes = lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
    const isSpecial = lead === 0xe0 || lead === 0xed || lead === 0xf0 || lead === 0xf4;
    const isKnown = to === before && !isSpecial && lead !== 0xe1 && lead !== 0xee && lead !== 0xf1;
    if (isKnown) leads[lead] = leads[lead - 1]!;
    else if (continues(to, numBytes, secondBytes(lead), next, steps)) leads[lead] = 1;
    before = to;
  }
  return leads;
}

/** Whether all characters continue from a state like this, and no other bytes follow. */
function continues(state: number, numBytes: number, bytes: ByteRange, next: number, steps: Steps): boolean {
  if (state === deadState) return false;
  const [first, last] = bytes;
  let before = deadState;
  for (let byte = 0x80; byte <= 0xbf; byte++) {
    const to = steps.step(state, byte);
    if (byte < first || byte > last) {
      if (to !== deadState) return false;
    } else if (numBytes === 1) {
      if (to !== next) return false;
    } else if (to === deadState || (to !== before && !continues(to, numBytes - 1, anyNext, next, steps))) {
      return false;
    }
    before = to;
  }
  return true;
}

type ByteRange = readonly [first: number, last: number];
const anyNext: ByteRange = [0x80, 0xbf];

/** The bytes that may follow the first byte of a character. */
export function secondBytes(lead: number): ByteRange {
  if (lead === 0xe0) return [0xa0, 0xbf];
  if (lead === 0xed) return [0x80, 0x9f];
  if (lead === 0xf0) return [0x90, 0xbf];
  return lead === 0xf4 ? [0x80, 0x8f] : anyNext;
}
