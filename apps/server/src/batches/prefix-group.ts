/** A key that sorts prompts so that those with a common beginning follow each other. */
import { createHash } from 'node:crypto';

/** Lengths of compared beginnings in UTF-16 units: more finely than a page of tokens is not worth it. */
const lengths = prefixLengths();
export const charactersPerHash = 5;

function prefixLengths(): readonly number[] {
  const found: number[] = [];
  for (let length = 96; length < 65_536; length = Math.ceil(length * 1.25)) found.push(length);
  return found;
}

/**
 * Hashes of longer and longer beginnings of a text: keys of texts have as many hashes in common as the texts have
 * beginnings. A key has at most 150 characters, so that it can be an index.
 */
export function prefixGroup(text: string): string {
  const hash = createHash('sha1');
  let key = '';
  let begin = 0;
  for (const length of lengths) {
    if (length > text.length) break;
    hash.update(text.slice(begin, length));
    begin = length;
    key += hash.copy().digest('base64url').slice(0, charactersPerHash);
  }
  return key;
}

/** The number of beginnings that two texts have in common, by their keys. */
export function numSharedHashes(a: string, b: string): number {
  let shared = 0;
  for (let end = charactersPerHash; end <= Math.min(a.length, b.length); end += charactersPerHash) {
    if (a.slice(end - charactersPerHash, end) !== b.slice(end - charactersPerHash, end)) break;
    shared++;
  }
  return shared;
}
