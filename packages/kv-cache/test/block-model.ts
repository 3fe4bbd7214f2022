/**
 * Drives a block manager with random commands alongside a naive model. The pool's tensors are simulated: each physical slot
 * holds a string that names its contents, so that a wrong share, a missed copy or a stale slot gives a wrong string.
 */
import { CapacityError, type Rng } from '@winnow/tensor';
import { expect } from 'vitest';
import { createBlockManager, type BlockChanges, type BlockManager, type BlockManagerOptions } from '../src/index.js';
import { NaiveSequence } from './naive-sequence.js';

type Command =
  | 'create'
  | 'append'
  | 'commit'
  | 'rollback'
  | 'truncate'
  | 'fork'
  | 'free'
  | 'evict'
  | 'detach'
  | 'attach'
  | 'dropPages'
  | 'restore'
  | 'dropCached';

/** Relative frequency of each command. */
const weights: Readonly<Record<Command, number>> = {
  create: 4,
  append: 10,
  commit: 2,
  rollback: 1,
  truncate: 2,
  fork: 3,
  free: 2,
  evict: 2,
  detach: 1,
  attach: 1,
  dropPages: 0.4,
  restore: 1,
  dropCached: 0.2,
};
const totalWeight = Object.values(weights).reduce((sum, weight) => sum + weight, 0);
const maxSequences = 6;
const salts = ['', '', 'other'];

export class BlockModel {
  readonly manager: BlockManager;
  /** How often each command ran. */
  readonly kinds: Map<Command, number> = new Map();
  readonly #rng: Rng;
  readonly #numBlocks: number;
  readonly #blockSize: number;
  readonly #texts: string[];
  readonly #slotPositions: Int32Array;
  readonly #pages = new Map<number, string[]>();
  readonly #model = new Map<number, NaiveSequence>();
  readonly #dropped = new Set<number>();
  #nextPage = 0;
  #numRefused = 0;

  constructor(options: BlockManagerOptions, rng: Rng) {
    this.manager = createBlockManager({ ...options, onContentDropped: (id) => this.#dropped.add(id) });
    this.#rng = rng;
    this.#numBlocks = options.numBlocks;
    this.#blockSize = options.blockSize;
    this.#texts = new Array<string>(options.numBlocks * options.blockSize).fill('never written');
    this.#slotPositions = new Int32Array(this.#texts.length).fill(-1);
  }

  /** Number of commands rejected for lack of room. */
  get numRefused(): number {
    return this.#numRefused;
  }

  /** Runs a random command, then compares the block manager with the model. */
  runCommand(): void {
    let left = this.#rng.nextFloat() * totalWeight;
    for (const [name, weight] of Object.entries(weights) as [Command, number][]) {
      left -= weight;
      if (left > 0) continue;
      this.#commands[name]();
      this.kinds.set(name, (this.kinds.get(name) ?? 0) + 1);
      this.#compare();
      return;
    }
  }

  readonly #commands: Readonly<Record<Command, () => void>> = {
    create: () => this.#create(),
    append: () => this.#onOne((id, sequence) => this.#append(id, sequence)),
    commit: () => this.#onOne((id, sequence) => this.#commit(id, sequence)),
    rollback: () => this.#onOne((id, sequence) => this.#rollback(id, sequence)),
    truncate: () => this.#onOne((id, sequence) => this.#truncate(id, sequence)),
    fork: () => this.#onOne((id, sequence) => this.#fork(id, sequence)),
    free: () => this.#onOne((id) => this.#free(id)),
    evict: () => this.#onOne((id, sequence) => this.#evict(id, sequence)),
    detach: () => this.#onOne((id, sequence) => this.#detach(id, sequence)),
    attach: () => this.#onOne((id, sequence) => this.#attach(id, sequence)),
    dropPages: () => this.#onOne((id, sequence) => this.#dropPages(id, sequence)),
    restore: () => this.#onOne((id, sequence) => this.#restore(id, sequence)),
    dropCached: () => this.#dropCached(),
  };

  #onOne(command: (id: number, sequence: NaiveSequence) => void): void {
    const ids = [...this.#model.keys()];
    if (ids.length === 0) return;
    const id = ids[this.#rng.nextInt(ids.length)]!;
    command(id, this.#model.get(id) as NaiveSequence);
  }

  #create(): void {
    if (this.#model.size >= maxSequences) return;
    const salt = salts[this.#rng.nextInt(salts.length)]!;
    let prefix: number[] = [];
    this.#onOne((_, { tokens }) => (prefix = [...tokens, ...this.#randomTokens(2)]));
    const limit = this.#rng.nextInt(4) * this.#blockSize;
    const expected = this.manager.countCached(prefix, salt);
    const view = this.manager.createSequence({ prefix, salt, acceptPrefix: (_, numTokens) => numTokens <= limit });
    expect(view.numTokens).toBe(Math.min(expected, limit));
    this.#model.set(view.id, new NaiveSequence(salt, prefix.slice(0, view.numTokens)));
  }

  #append(id: number, sequence: NaiveSequence): void {
    const tokens = this.#randomTokens(1 + this.#rng.nextInt(2 * this.#blockSize));
    const canAppend = this.manager.canAppend(id, tokens.length);
    const needed = this.manager.countNewBlocks(id, tokens.length);
    const before = this.manager.usage();
    const isDone = this.#attempt(() => {
      const appended = this.manager.append(id, tokens);
      this.#apply(appended);
      expect(this.manager.usage().numUsedBlocks - before.numUsedBlocks).toBe(needed);
      tokens.forEach((token, i) => {
        const position = appended.positions[i]!;
        check(position === sequence.tokens.length, () => `position ${position} was appended out of order`);
        this.#texts[appended.slots[i]!] = sequence.append(token);
        this.#slotPositions[appended.slots[i]!] = position;
      });
    });
    expect(isDone).toBe(canAppend);
    if (isDone && this.#rng.nextInt(4) > 0) this.#commit(id, sequence);
  }

  #commit(id: number, sequence: NaiveSequence): void {
    this.manager.commit(id);
    sequence.numCommitted = sequence.tokens.length;
    const numWhole = sequence.tokens.length - (sequence.tokens.length % this.#blockSize);
    const contentId = this.manager.contentId(id, numWhole);
    if (contentId !== undefined) expect(this.#dropped.has(contentId)).toBe(false);
  }

  #rollback(id: number, sequence: NaiveSequence): void {
    this.#apply(this.manager.rollback(id));
    sequence.truncate(sequence.numCommitted);
  }

  #truncate(id: number, sequence: NaiveSequence): void {
    const numTokens = this.#rng.nextInt(sequence.tokens.length + 2);
    if (this.#attempt(() => this.#apply(this.manager.truncate(id, numTokens)))) sequence.truncate(numTokens);
  }

  #fork(id: number, sequence: NaiveSequence): void {
    if (this.#model.size >= maxSequences) return;
    if (sequence.numCommitted < sequence.tokens.length) {
      expect(() => this.manager.fork(id)).toThrow('no uncommitted tokens');
      return;
    }
    this.#model.set(this.manager.fork(id).id, sequence.copy(sequence.detached));
  }

  #free(id: number): void {
    this.#apply(this.manager.free(id));
    this.#model.delete(id);
  }

  #evict(id: number, sequence: NaiveSequence): void {
    const { positions } = this.manager.sequence(id);
    const slots: number[] = [];
    positions.forEach((position, slot) => {
      if (position >= 0 && position < sequence.numCommitted && this.#rng.nextInt(4) === 0) slots.push(slot);
    });
    const victims = slots.map((slot) => positions[slot]!);
    if (this.#attempt(() => this.#apply(this.manager.evict(id, slots)))) sequence.evict(victims);
  }

  #detach(id: number, sequence: NaiveSequence): void {
    const { blocks, positions } = this.manager.sequence(id);
    const full = blocks.flatMap((_, tableIndex) => {
      const own = positions.slice(tableIndex * this.#blockSize, (tableIndex + 1) * this.#blockSize);
      const isFull = own.length === this.#blockSize && own.every((position) => position < sequence.numCommitted);
      return isFull && this.#rng.nextInt(2) === 0 ? [{ tableIndex, pageId: this.#nextPage++, own }] : [];
    });
    for (const { tableIndex, pageId, own } of full) {
      const begin = blocks[tableIndex]! * this.#blockSize;
      this.#pages.set(pageId, this.#texts.slice(begin, begin + this.#blockSize));
      for (const position of own) if (position >= 0) sequence.detached.set(position, pageId);
    }
    this.#apply(this.manager.detach(id, full));
  }

  #attach(id: number, sequence: NaiveSequence): void {
    const pageId = this.#pickPage(sequence);
    if (pageId === undefined) return;
    const stored = this.#pages.get(pageId) as string[];
    this.#attempt(() => {
      const { block, positions, ...changes } = this.manager.attach(id, pageId);
      this.#apply(changes);
      positions.forEach((position, i) => {
        this.#texts[block * this.#blockSize + i] = stored[i]!;
        this.#slotPositions[block * this.#blockSize + i] = position;
        sequence.detached.delete(position);
      });
    });
  }

  #dropPages(id: number, sequence: NaiveSequence): void {
    const pageId = this.#pickPage(sequence);
    if (pageId === undefined) return;
    const victims = [...sequence.detached].filter(([, own]) => own === pageId).map(([position]) => position);
    this.#apply(this.manager.dropPages(id, [pageId]));
    for (const position of victims) sequence.detached.delete(position);
    sequence.evict(victims);
  }

  #restore(id: number, sequence: NaiveSequence): void {
    if (this.#model.size >= maxSequences) return;
    const { positions, tokens, salt, isShareable, detachedPages, numSlots } = this.manager.sequence(id);
    const saved = { tokens: tokens.slice(), positions: positions.slice(), salt, isShareable };
    const savedTexts = Array.from({ length: numSlots }, (_, slot) => this.#texts[this.#physicalSlot(id, slot)]!);
    const copies = detachedPages.map((page) => ({ ...page, pageId: this.#nextPage++, from: page.pageId }));
    this.#attempt(() => {
      const restored = this.manager.restoreSequence({ ...saved, detachedPages: copies });
      savedTexts.forEach((text, slot) => {
        const physical = this.#physicalSlot(restored.id, slot);
        this.#texts[physical] = text;
        this.#slotPositions[physical] = saved.positions[slot]!;
      });
      const detached = new Map<number, number>();
      for (const { pageId, from, positions: pagePositions } of copies) {
        this.#pages.set(pageId, [...(this.#pages.get(from) as string[])]);
        for (const position of pagePositions) if (position >= 0) detached.set(position, pageId);
      }
      const copy = sequence.copy(detached);
      this.#model.set(restored.id, copy);
      this.#commit(restored.id, copy);
    });
  }

  #dropCached(): void {
    this.manager.dropCached();
    expect(this.manager.usage().numCachedBlocks).toBe(0);
  }

  /** Few token ids, so that prefixes are shared. */
  #randomTokens(count: number): number[] {
    return Array.from({ length: count }, () => this.#rng.nextInt(2));
  }

  #pickPage({ detached }: NaiveSequence): number | undefined {
    return detached.size === 0 ? undefined : [...detached.values()][this.#rng.nextInt(detached.size)];
  }

  #physicalSlot(id: number, logicalSlot: number): number {
    const block = this.manager.sequence(id).blocks[Math.floor(logicalSlot / this.#blockSize)]!;
    return block * this.#blockSize + (logicalSlot % this.#blockSize);
  }

  #apply({ newBlocks, copies, clearedSlots, droppedPages }: BlockChanges): void {
    const size = this.#blockSize;
    for (const block of newBlocks) {
      this.#texts.fill('stale', block * size, (block + 1) * size);
      this.#slotPositions.fill(-7, block * size, (block + 1) * size);
    }
    for (const { from, to, numSlots } of copies) {
      for (let i = 0; i < numSlots; i++) {
        this.#texts[to * size + i] = this.#texts[from * size + i]!;
        this.#slotPositions[to * size + i] = this.#slotPositions[from * size + i]!;
      }
    }
    for (const slot of clearedSlots) {
      this.#texts[slot] = 'cleared';
      this.#slotPositions[slot] = -1;
    }
    for (const page of droppedPages) check(this.#pages.delete(page), () => `page ${page} was dropped twice`);
  }

  /** Runs a command that may be rejected; rejection must change nothing. */
  #attempt(command: () => void): boolean {
    const before = this.#snapshot();
    try {
      command();
      return true;
    } catch (error) {
      if (!CapacityError.isInstance(error)) throw error;
      this.#numRefused++;
      expect(this.#snapshot()).toEqual(before);
      return false;
    }
  }

  #snapshot(): unknown {
    const sequences = this.manager.sequenceIds.map((id) => {
      const { blocks, tokens, positions, numCommitted, detachedPages, isShareable } = this.manager.sequence(id);
      return JSON.stringify([id, blocks, [...tokens], [...positions], numCommitted, detachedPages, isShareable]);
    });
    return { usage: this.manager.usage(), sequences };
  }

  #compare(): void {
    this.manager.checkIntegrity();
    expect([...this.manager.sequenceIds]).toEqual([...this.#model.keys()]);
    for (const [id, sequence] of this.#model) this.#compareSequence(id, sequence);
    const { numFreeBlocks, numCachedBlocks, numUsedBlocks } = this.manager.usage();
    expect(numFreeBlocks + numCachedBlocks + numUsedBlocks).toBe(this.#numBlocks);
  }

  #compareSequence(id: number, sequence: NaiveSequence): void {
    const view = this.manager.sequence(id);
    const isEqual = view.tokens.every((token, i) => token === sequence.tokens[i]);
    check(isEqual && view.tokens.length === sequence.tokens.length, () => `sequence ${id} has other tokens`);
    check(view.numCommitted === sequence.numCommitted, () => `sequence ${id}: ${view.numCommitted} committed`);
    const numEvicted = sequence.tokens.length - sequence.held.size;
    check(view.numEvicted === numEvicted, () => `sequence ${id}: ${view.numEvicted} evicted, expected ${numEvicted}`);
    const found = new Map<number, string>();
    for (let slot = 0; slot < view.numSlots; slot++) {
      const block = view.blocks[Math.floor(slot / this.#blockSize)]!;
      const physical = block * this.#blockSize + (slot % this.#blockSize);
      const position = view.positions[slot]!;
      check(this.#slotPositions[physical] === position, () => `slot ${physical} does not hold position ${position}`);
      if (position >= 0) found.set(position, this.#texts[physical]!);
    }
    for (const { pageId, positions } of view.detachedPages) {
      positions.forEach((position, i) => {
        if (position < 0) return;
        check(sequence.detached.get(position) === pageId, () => `position ${position} is not in page ${pageId}`);
        found.set(position, (this.#pages.get(pageId) as string[])[i]!);
      });
    }
    check(found.size === sequence.held.size, () => `sequence ${id} holds ${found.size} positions`);
    for (const [position, text] of sequence.held) {
      check(found.get(position) === text, () => `position ${position}: ${found.get(position)}, expected ${text}`);
    }
  }
}

/** Thousands of checks per command, for which `expect` is too slow. */
function check(condition: boolean, message: () => string): void {
  if (!condition) expect.fail(message());
}
