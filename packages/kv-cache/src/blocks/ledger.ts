/**
 * Who owns which block: reference counts, the free list, and the contents kept for prefix sharing. A block is free, in
 * use (reference count above 0) or cached (reference count 0 with a content); cached blocks are reclaimed oldest first.
 */
import { invariant } from '@winnow/tensor';

/** What a full block holds: these tokens after the content `parent`, or after nothing under a salt. */
interface Content {
  readonly hash: number;
  readonly parent: number | string;
  readonly tokens: Int32Array;
  readonly block: number;
}

export type HashTokens = (previous: number, tokens: Int32Array) => number;

export interface BlockLedger {
  readonly numFree: number;
  readonly numCached: number;
  readonly numReclaimed: number;
  refCount(block: number): number;
  /** A block that nothing refers to, with reference count 1. There must be one: `numFree + numCached > 0`. */
  take(): number;
  retain(block: number): void;
  /** Gives one reference back. */
  release(block: number): void;
  /** The content of a block must not be found any more: it is about to change. */
  forget(block: number): void;
  /** The content with these tokens after `parent`. Token ids are compared: equal hashes do no harm. */
  find(hash: number, parent: number | string, tokens: Int32Array): number | undefined;
  /** Records what a full block holds and returns the content's id; an equal content keeps its id and its block. */
  register(block: number, hash: number, parent: number | string, tokens: Int32Array): number;
  blockOf(contentId: number): number;
  has(contentId: number): boolean;
  dropCached(): void;
  /** @param references how often the sequences refer to each block */
  checkIntegrity(references: Int32Array): void;
}

export function createBlockLedger(numBlocks: number, onContentDropped: (contentId: number) => void): BlockLedger {
  const refCounts = new Int32Array(numBlocks);
  const free = Array.from({ length: numBlocks }, (_, index) => numBlocks - 1 - index);
  const cached = new Set<number>(); // insertion order: the oldest first
  const contentOfBlock = new Float64Array(numBlocks); // 0: none
  const contents = new Map<number, Content>();
  const idsByHash = new Map<number, number[]>();
  let nextContentId = 1;
  let numReclaimed = 0;

  function find(hash: number, parent: number | string, tokens: Int32Array): number | undefined {
    return idsByHash.get(hash)?.find((id) => {
      const content = contents.get(id) as Content;
      return content.parent === parent && equalTokens(content.tokens, tokens);
    });
  }

  function forget(block: number): void {
    const id = contentOfBlock[block];
    if (id === 0) return;
    const { hash } = contents.get(id) as Content;
    contentOfBlock[block] = 0;
    contents.delete(id);
    const others = (idsByHash.get(hash) as number[]).filter((other) => other !== id);
    if (others.length === 0) idsByHash.delete(hash);
    else idsByHash.set(hash, others);
    onContentDropped(id);
  }

  function reclaim(block: number): void {
    cached.delete(block);
    forget(block);
    numReclaimed++;
  }

  return {
    get numFree() {
      return free.length;
    },
    get numCached() {
      return cached.size;
    },
    get numReclaimed() {
      return numReclaimed;
    },
    refCount: (block) => refCounts[block],
    take() {
      let block = free.pop();
      if (block === undefined) {
        for (const oldest of cached) {
          block = oldest;
          break;
        }
        invariant(block !== undefined, 'a block was taken from a full pool');
        reclaim(block);
      }
      refCounts[block] = 1;
      return block;
    },
    retain(block) {
      if (refCounts[block]++ === 0) cached.delete(block);
    },
    release(block) {
      invariant(refCounts[block] > 0, `block ${block} was released too often`);
      if (--refCounts[block] > 0) return;
      if (contentOfBlock[block] === 0) free.push(block);
      else cached.add(block);
    },
    forget,
    find,
    register(block, hash, parent, tokens) {
      const known = find(hash, parent, tokens);
      if (known !== undefined) return known;
      forget(block); // it was recorded after a content that is gone
      const id = nextContentId++;
      contents.set(id, { hash, parent, tokens: tokens.slice(), block });
      contentOfBlock[block] = id;
      const others = idsByHash.get(hash);
      if (others === undefined) idsByHash.set(hash, [id]);
      else others.push(id);
      return id;
    },
    blockOf: (contentId) => (contents.get(contentId) as Content).block,
    has: (contentId) => contents.has(contentId),
    dropCached() {
      for (const block of cached) {
        reclaim(block);
        free.push(block);
      }
    },
    checkIntegrity(references) {
      const isFree = new Set(free);
      invariant(isFree.size === free.length, 'a block is free twice');
      for (let block = 0; block < numBlocks; block++) {
        const count = refCounts[block];
        invariant(count === references[block], `block ${block}: ${references[block]} references, counted ${count}`);
        const states = Number(count > 0) + Number(isFree.has(block)) + Number(cached.has(block));
        invariant(states === 1, `block ${block} is in ${states} of: in use, free, cached`);
        const id = contentOfBlock[block];
        invariant(id === 0 || contents.get(id)?.block === block, `block ${block} has a content of another block`);
        invariant(!isFree.has(block) || id === 0, `free block ${block} has a content`);
        invariant(!cached.has(block) || id !== 0, `cached block ${block} has no content`);
      }
      let numIds = 0;
      for (const [hash, ids] of idsByHash) {
        for (const id of ids) invariant(contents.get(id)?.hash === hash, `content ${id} is under the wrong hash`);
        numIds += ids.length;
      }
      invariant(numIds === contents.size, 'contents and their hashes differ in number');
      for (const [id, { block }] of contents) {
        invariant(contentOfBlock[block] === id, `content ${id} has lost its block`);
      }
    },
  };
}

function equalTokens(a: Int32Array, b: Int32Array): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

/** Mixes tokens into a 32-bit hash, one multiply-rotate-multiply round each (the constants are those of XXH32). */
export function hashTokens(previous: number, tokens: Int32Array): number {
  let hash = previous | 0;
  for (let i = 0; i < tokens.length; i++) {
    hash = (hash + Math.imul(tokens[i], 0xc2b2ae3d)) | 0;
    hash = Math.imul((hash << 17) | (hash >>> 15), 0x27d4eb2f);
  }
  hash ^= hash >>> 15;
  return Math.imul(hash, 0x85ebca77);
}
