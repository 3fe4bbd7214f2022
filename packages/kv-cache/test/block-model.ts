/**
 * Drives a block manager with random commands beside a naive model. The pool's tensors are simulated: each physical slot
 * holds a string that says what was computed there, so a wrong share, a missed copy or a stale slot shows as a wrong text.
 */
import { CapacityError, type Rng } from '@winnow/tensor';
import { expect } from 'vitest';
import { createBlockManager, type BlockChanges, type BlockManager, type BlockManagerOptions } from '../src/index.js';

interface NaiveSequence {
  readonly salt: string;
  tokens: number[];
  numCommitted: number;
  /** What is held, by position: the text that its slot has to hold. */
  held: Map<number, string>;
  /** Page id by position, for those that are detached. */
  detached: Map<number, number>;
  /** What happened besides appending: later values depend on it. */
  history: string;
}

export interface BlockModel {
  readonly manager: BlockManager;
  readonly numCommands: number;
  /** Commands that were refused for lack of room. */
  readonly numRefused: number;
  readonly kinds: ReadonlyMap<string, number>;
  runCommand(): void;
}

export function createBlockModel(options: BlockManagerOptions, rng: Rng): BlockModel {
  const dropped = new Set<number>();
  const manager = createBlockManager({ ...options, onContentDropped: (id) => dropped.add(id) });
  const { numBlocks, blockSize } = options;
  const texts = new Array<string>(numBlocks * blockSize).fill('never written');
  const slotPositions = new Int32Array(numBlocks * blockSize).fill(-1);
  const pages = new Map<number, string[]>();
  const model = new Map<number, NaiveSequence>();
  let nextPage = 0;
  let numCommands = 0;
  let numRefused = 0;
  const kinds = new Map<string, number>();

  function textOf({ salt, tokens, history }: NaiveSequence, position: number): string {
    return `${salt}|${tokens.slice(0, position + 1).join(' ')}|${history}`;
  }

  function apply({ newBlocks, copies, clearedSlots, droppedPages }: BlockChanges): void {
    for (const block of newBlocks) {
      texts.fill('stale', block * blockSize, (block + 1) * blockSize);
      slotPositions.fill(-7, block * blockSize, (block + 1) * blockSize);
    }
    for (const { from, to, numSlots } of copies) {
      for (let i = 0; i < numSlots; i++) {
        texts[to * blockSize + i] = texts[from * blockSize + i];
        slotPositions[to * blockSize + i] = slotPositions[from * blockSize + i];
      }
    }
    for (const slot of clearedSlots) {
      texts[slot] = 'cleared';
      slotPositions[slot] = -1;
    }
    for (const page of droppedPages) expect(pages.delete(page)).toBe(true);
  }

  /** Runs a command that may be refused; a refusal must change nothing. */
  function attempt(command: () => void): boolean {
    const before = snapshot();
    try {
      command();
      return true;
    } catch (error) {
      if (!CapacityError.isInstance(error)) throw error;
      numRefused++;
      expect(snapshot()).toEqual(before);
      return false;
    }
  }

  function snapshot(): unknown {
    return {
      usage: manager.usage(),
      sequences: manager.sequenceIds.map((id) => {
        const { blocks, tokens, positions, numCommitted, detachedPages, isShareable } = manager.sequence(id);
        return JSON.stringify([id, blocks, [...tokens], [...positions], numCommitted, detachedPages, isShareable]);
      }),
    };
  }

  function pick(): [number, NaiveSequence] | undefined {
    const ids = [...model.keys()];
    if (ids.length === 0) return undefined;
    const id = ids[rng.nextInt(ids.length)];
    return [id, model.get(id) as NaiveSequence];
  }

  /** Few different tokens, so that prefixes meet. */
  const randomTokens = (count: number): number[] => Array.from({ length: count }, () => rng.nextInt(2));
  const salts = ['', '', 'other'];

  const commands: Record<string, () => void> = {
    create() {
      if (model.size >= 6) return;
      const salt = salts[rng.nextInt(salts.length)];
      const source = pick();
      const prefix = source === undefined ? [] : [...source[1].tokens, ...randomTokens(2)];
      const limit = rng.nextInt(4) * blockSize;
      const expected = manager.countCached(prefix, salt);
      const view = manager.createSequence({ prefix, salt, acceptPrefix: (_, numTokens) => numTokens <= limit });
      expect(view.numTokens).toBe(Math.min(expected, limit));
      const tokens = prefix.slice(0, view.numTokens);
      const sequence: NaiveSequence = {
        salt,
        tokens,
        numCommitted: tokens.length,
        held: new Map(),
        detached: new Map(),
        history: '',
      };
      tokens.forEach((_, position) => sequence.held.set(position, textOf(sequence, position)));
      model.set(view.id, sequence);
    },
    append() {
      const target = pick();
      if (target === undefined) return;
      const [id, sequence] = target;
      const tokens = randomTokens(1 + rng.nextInt(2 * blockSize));
      const canAppend = manager.canAppend(id, tokens.length);
      const needed = manager.countNewBlocks(id, tokens.length);
      const before = manager.usage();
      const isDone = attempt(() => {
        const appended = manager.append(id, tokens);
        apply(appended);
        const after = manager.usage();
        expect(after.numUsedBlocks - before.numUsedBlocks).toBe(needed);
        tokens.forEach((token, i) => {
          const position = appended.positions[i];
          expect(position).toBe(sequence.tokens.length);
          sequence.tokens.push(token);
          const text = textOf(sequence, position);
          sequence.held.set(position, text);
          texts[appended.slots[i]] = text;
          slotPositions[appended.slots[i]] = position;
        });
      });
      expect(isDone).toBe(canAppend);
      if (isDone && rng.nextInt(4) > 0) commit(id, sequence);
    },
    commit() {
      const target = pick();
      if (target !== undefined) commit(...target);
    },
    rollback() {
      const target = pick();
      if (target === undefined) return;
      const [id, sequence] = target;
      apply(manager.rollback(id));
      forgetFrom(sequence, sequence.numCommitted);
    },
    truncate() {
      const target = pick();
      if (target === undefined) return;
      const [id, sequence] = target;
      const numTokens = rng.nextInt(sequence.tokens.length + 2);
      if (attempt(() => apply(manager.truncate(id, numTokens)))) forgetFrom(sequence, numTokens);
    },
    fork() {
      const target = pick();
      if (target === undefined || model.size >= 6) return;
      const [id, sequence] = target;
      if (sequence.numCommitted < sequence.tokens.length) {
        expect(() => manager.fork(id)).toThrow('no uncommitted tokens');
        return;
      }
      model.set(manager.fork(id).id, {
        ...sequence,
        tokens: [...sequence.tokens],
        held: new Map(sequence.held),
        detached: new Map(sequence.detached),
      });
    },
    free() {
      const target = pick();
      if (target === undefined) return;
      apply(manager.free(target[0]));
      model.delete(target[0]);
    },
    evict() {
      const target = pick();
      if (target === undefined) return;
      const [id, sequence] = target;
      const { positions } = manager.sequence(id);
      const slots: number[] = [];
      positions.forEach((position, slot) => {
        if (position >= 0 && position < sequence.numCommitted && rng.nextInt(4) === 0) slots.push(slot);
      });
      const victims = slots.map((slot) => positions[slot]);
      if (!attempt(() => apply(manager.evict(id, slots)))) return;
      for (const position of victims) sequence.held.delete(position);
      if (victims.length > 0) sequence.history += `-${victims.join(',')}`;
    },
    detach() {
      const target = pick();
      if (target === undefined) return;
      const [id, sequence] = target;
      const { blocks, positions } = manager.sequence(id);
      const full = blocks.flatMap((_, tableIndex) => {
        const own = positions.slice(tableIndex * blockSize, (tableIndex + 1) * blockSize);
        const isFull = own.length === blockSize && own.every((position) => position < sequence.numCommitted);
        return isFull && rng.nextInt(2) === 0 ? [{ tableIndex, pageId: nextPage++, own }] : [];
      });
      for (const { tableIndex, pageId, own } of full) {
        const begin = blocks[tableIndex] * blockSize;
        pages.set(pageId, texts.slice(begin, begin + blockSize));
        for (const position of own) if (position >= 0) sequence.detached.set(position, pageId);
      }
      apply(manager.detach(id, full));
    },
    dropPages() {
      const target = pick();
      if (target === undefined || target[1].detached.size === 0 || rng.nextInt(3) > 0) return;
      const [id, sequence] = target;
      const pageId = [...sequence.detached.values()][rng.nextInt(sequence.detached.size)];
      const victims = [...sequence.detached].filter(([, own]) => own === pageId).map(([position]) => position);
      apply(manager.dropPages(id, [pageId]));
      for (const position of victims) {
        sequence.detached.delete(position);
        sequence.held.delete(position);
      }
      sequence.history += `-${victims.join(',')}`;
    },
    attach() {
      const target = pick();
      if (target === undefined || target[1].detached.size === 0) return;
      const [id, sequence] = target;
      const pageId = [...sequence.detached.values()][rng.nextInt(sequence.detached.size)];
      const stored = pages.get(pageId) as string[];
      attempt(() => {
        const { block, positions, ...changes } = manager.attach(id, pageId);
        apply(changes);
        positions.forEach((position, i) => {
          texts[block * blockSize + i] = stored[i];
          slotPositions[block * blockSize + i] = position;
          sequence.detached.delete(position);
        });
      });
    },
    restore() {
      const source = pick();
      if (source === undefined || model.size >= 6) return;
      const [id, sequence] = source;
      const { positions, tokens, salt, isShareable, blocks, detachedPages, numSlots } = manager.sequence(id);
      const saved = { tokens: tokens.slice(), positions: positions.slice(), salt, isShareable };
      const savedTexts = Array.from({ length: numSlots }, (_, slot) => {
        return texts[blocks[Math.floor(slot / blockSize)] * blockSize + (slot % blockSize)];
      });
      const copies = detachedPages.map((page) => ({ ...page, pageId: nextPage++, from: page.pageId }));
      attempt(() => {
        const restored = manager.restoreSequence({ ...saved, detachedPages: copies });
        savedTexts.forEach((text, i) => {
          const slot = restored.blocks[Math.floor(i / blockSize)] * blockSize + (i % blockSize);
          texts[slot] = text;
          slotPositions[slot] = saved.positions[i];
        });
        const detached = new Map<number, number>();
        for (const { pageId, from, positions: pagePositions } of copies) {
          pages.set(pageId, [...(pages.get(from) as string[])]);
          for (const position of pagePositions) if (position >= 0) detached.set(position, pageId);
        }
        const copy = { ...sequence, tokens: [...sequence.tokens], held: new Map(sequence.held), detached };
        model.set(restored.id, copy);
        commit(restored.id, copy);
      });
    },
    dropCached() {
      manager.dropCached();
      expect(manager.usage().numCachedBlocks).toBe(0);
    },
  };

  function commit(id: number, sequence: NaiveSequence): void {
    manager.commit(id);
    sequence.numCommitted = sequence.tokens.length;
    const numWhole = sequence.tokens.length - (sequence.tokens.length % blockSize);
    const contentId = manager.contentId(id, numWhole);
    if (contentId !== undefined) expect(dropped.has(contentId)).toBe(false);
  }

  function forgetFrom(sequence: NaiveSequence, numTokens: number): void {
    sequence.tokens = sequence.tokens.slice(0, numTokens);
    sequence.numCommitted = Math.min(sequence.numCommitted, numTokens);
    for (const map of [sequence.held, sequence.detached]) {
      for (const position of map.keys()) if (position >= numTokens) map.delete(position);
    }
  }

  function compare(): void {
    manager.checkIntegrity();
    expect([...manager.sequenceIds]).toEqual([...model.keys()]);
    for (const [id, sequence] of model) {
      const view = manager.sequence(id);
      expect([...view.tokens]).toEqual(sequence.tokens);
      expect(view.numCommitted).toBe(sequence.numCommitted);
      expect(view.numEvicted).toBe(sequence.tokens.length - sequence.held.size);
      const found = new Map<number, string>();
      for (let slot = 0; slot < view.numSlots; slot++) {
        const physical = view.blocks[Math.floor(slot / blockSize)] * blockSize + (slot % blockSize);
        expect(slotPositions[physical]).toBe(view.positions[slot]);
        if (view.positions[slot] >= 0) found.set(view.positions[slot], texts[physical]);
      }
      for (const { pageId, positions } of view.detachedPages) {
        positions.forEach((position, i) => {
          if (position < 0) return;
          expect(sequence.detached.get(position)).toBe(pageId);
          found.set(position, (pages.get(pageId) as string[])[i]);
        });
      }
      expect(found.size).toBe(sequence.held.size);
      for (const [position, text] of sequence.held) expect(found.get(position)).toBe(text);
    }
    const { numFreeBlocks, numCachedBlocks, numUsedBlocks } = manager.usage();
    expect(numFreeBlocks + numCachedBlocks + numUsedBlocks).toBe(numBlocks);
  }

  // how often each command comes
  const weights: Record<string, number> = {
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
    restore: 1,
    dropCached: 0.2,
  };
  const total = Object.values(weights).reduce((sum, weight) => sum + weight, 0);

  return {
    manager,
    get numCommands() {
      return numCommands;
    },
    get numRefused() {
      return numRefused;
    },
    kinds,
    runCommand() {
      let left = rng.nextFloat() * total;
      for (const [name, weight] of Object.entries(weights)) {
        left -= weight;
        if (left > 0) continue;
        commands[name]();
        numCommands++;
        kinds.set(name, (kinds.get(name) ?? 0) + 1);
        compare();
        return;
      }
    },
  };
}
