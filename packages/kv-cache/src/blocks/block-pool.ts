/**
 * The state of each block: free, in use (reference count above 0) or cached (reference count 0, with content that a
 * prefix may find). Cached blocks are reclaimed when no free one is left, oldest first.
 */
import { invariant } from '@winnow/tensor';

/** The content of a full block: these tokens after the content `parent`, or after nothing under a salt. */
interface Content {
  readonly hash: number;
  readonly parent: number | string;
  readonly tokens: Int32Array;
  readonly block: number;
}

export class BlockPool {
  readonly #onContentDropped: (contentId: number) => void;
  readonly #refCounts: Int32Array;
  readonly #free: number[];
  readonly #cached = new Set<number>(); // in insertion order, oldest first
  readonly #contentOfBlock: Float64Array; // 0: none
  readonly #contents = new Map<number, Content>();
  readonly #idsByHash = new Map<number, number[]>();
  #nextContentId = 1;
  #numReclaimed = 0;

  constructor(numBlocks: number, onContentDropped: (contentId: number) => void) {
    this.#onContentDropped = onContentDropped;
    this.#refCounts = new Int32Array(numBlocks);
    this.#free = Array.from({ length: numBlocks }, (_, index) => numBlocks - 1 - index);
    this.#contentOfBlock = new Float64Array(numBlocks);
  }

  get numFree(): number {
    return this.#free.length;
  }

  get numCached(): number {
    return this.#cached.size;
  }

  get numReclaimed(): number {
    return this.#numReclaimed;
  }

  refCount(block: number): number {
    return this.#refCounts[block];
  }

  /** Allocates a block with reference count 1. Requires `numFree + numCached > 0`. */
  allocate(): number {
    let block = this.#free.pop();
    if (block === undefined) {
      [block] = this.#cached;
      invariant(block !== undefined, 'a block was allocated from a full pool');
      this.#reclaim(block);
    }
    this.#refCounts[block] = 1;
    return block;
  }

  retain(block: number): void {
    if (this.#refCounts[block]++ === 0) this.#cached.delete(block);
  }

  /** Releases one reference. */
  release(block: number): void {
    invariant(this.#refCounts[block] > 0, `block ${block} was released too often`);
    if (--this.#refCounts[block] > 0) return;
    if (this.#contentOfBlock[block] === 0) this.#free.push(block);
    else this.#cached.add(block);
  }

  /** Called before a block changes: no prefix may find its old content. */
  dropContent(block: number): void {
    const id = this.#contentOfBlock[block];
    if (id === 0) return;
    const { hash } = this.#contents.get(id) as Content;
    this.#contentOfBlock[block] = 0;
    this.#contents.delete(id);
    const others = (this.#idsByHash.get(hash) as number[]).filter((other) => other !== id);
    if (others.length === 0) this.#idsByHash.delete(hash);
    else this.#idsByHash.set(hash, others);
    this.#onContentDropped(id);
  }

  /** The content with these tokens after `parent`. Token ids are compared, so hash collisions are harmless. */
  find(hash: number, parent: number | string, tokens: Int32Array): number | undefined {
    return this.#idsByHash.get(hash)?.find((id) => {
      const content = this.#contents.get(id) as Content;
      return content.parent === parent && equalTokens(content.tokens, tokens);
    });
  }

  /** Records the content of a full block and returns its id; equal content keeps its id and its block. */
  register(block: number, hash: number, parent: number | string, tokens: Int32Array): number {
    const known = this.find(hash, parent, tokens);
    if (known !== undefined) return known;
    this.dropContent(block); // its parent content is gone
    const id = this.#nextContentId++;
    this.#contents.set(id, { hash, parent, tokens: tokens.slice(), block });
    this.#contentOfBlock[block] = id;
    const others = this.#idsByHash.get(hash);
    if (others === undefined) this.#idsByHash.set(hash, [id]);
    else others.push(id);
    return id;
  }

  blockOf(contentId: number): number {
    return (this.#contents.get(contentId) as Content).block;
  }

  hasContent(contentId: number): boolean {
    return this.#contents.has(contentId);
  }

  dropCached(): void {
    for (const block of this.#cached) {
      this.#reclaim(block);
      this.#free.push(block);
    }
  }

  /**
   * @param references number of references to each block
   * @throws {Error} when any invariant is broken
   */
  checkIntegrity(references: Int32Array): void {
    const isFree = new Set(this.#free);
    invariant(isFree.size === this.#free.length, 'a block is free twice');
    for (let block = 0; block < this.#refCounts.length; block++) {
      const count = this.#refCounts[block];
      invariant(count === references[block], `block ${block}: ${references[block]} references, counted ${count}`);
      const isCached = this.#cached.has(block);
      const numStates = Number(count > 0) + Number(isFree.has(block)) + Number(isCached);
      invariant(numStates === 1, `block ${block} is in ${numStates} of: in use, free, cached`);
      const id = this.#contentOfBlock[block];
      invariant(id === 0 || this.#contents.get(id)?.block === block, `block ${block} has a content of another block`);
      invariant(!isFree.has(block) || id === 0, `free block ${block} has a content`);
      invariant(!isCached || id !== 0, `cached block ${block} has no content`);
    }
    this.#checkContents();
  }

  #checkContents(): void {
    let numIds = 0;
    for (const [hash, ids] of this.#idsByHash) {
      for (const id of ids) invariant(this.#contents.get(id)?.hash === hash, `content ${id} is under the wrong hash`);
      numIds += ids.length;
    }
    invariant(numIds === this.#contents.size, 'contents and their hashes differ in number');
    for (const [id, { block }] of this.#contents) {
      invariant(this.#contentOfBlock[block] === id, `content ${id} has lost its block`);
    }
  }

  #reclaim(block: number): void {
    this.#cached.delete(block);
    this.dropContent(block);
    this.#numReclaimed++;
  }
}

function equalTokens(a: Int32Array, b: Int32Array): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}
