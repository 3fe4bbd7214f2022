/** The cached tokens of one session: a sequence of the block manager that can begin anew and share prefixes with others. */
import {
  createHeavyHitters,
  type AppendedSlots,
  type BlockManager,
  type HeavyHitterOptions,
  type HeavyHitters,
  type SequenceContents,
  type SequenceView,
} from '@winnow/kv-cache';
import type { KvMemory } from '../memory/kv-memory.js';
import type { KvTiers } from '../kv-offload/offloader.js';
import type { ReportEvent } from '../metrics/events.js';
import type { StateRows, StateSlot } from './state-rows.js';

/** The pool that all sequences of a model share. */
export interface KvPool {
  readonly manager: BlockManager;
  readonly memory: KvMemory;
  /** For models with recurrent state. */
  readonly states: StateRows | undefined;
  /** Where contents go that the pool has no room for. */
  readonly tiers?: KvTiers | undefined;
  /** When tokens are evicted by how little they were looked at. */
  readonly heavyHitters?: HeavyHitterOptions | undefined;
  readonly report: ReportEvent;
  /** Called when blocks may have become free. */
  readonly onFreed: () => void;
}

export interface Sequence {
  /** What the block manager knows of it. Another object after `begin`. */
  readonly view: SequenceView;
  /** Rows of the recurrent state, for models that have one. */
  readonly state: StateSlot | undefined;
  /** How much its tokens were looked at, where that is measured. */
  readonly heavyHitters: HeavyHitters | undefined;
  /** Tokens that were given up for lack of room, to be computed again before anything else. */
  readonly lost: Int32Array | undefined;
  /**
   * Makes it hold the longest known prefix of `tokens`: its own or one that another sequence computed.
   * @param mayHaveGaps whether contents without some positions, evicted before, may be kept
   * @returns how many leading tokens are cached
   */
  begin(tokens: Int32Array, mayHaveGaps: boolean): number;
  /** Slots for a step. @throws {CapacityError} */
  append(tokens: Int32Array): AppendedSlots;
  /**
   * The step has stored its tokens, and their state unless its program has none.
   * @param masses how much it looked at each logical slot
   */
  commit(hasState: boolean, masses?: Float64Array): void;
  /** The step has failed. */
  rollback(): void;
  /** Drops positions from the pool; logical slots as in `BlockManager.evict`. */
  evict(logicalSlots: readonly number[]): void;
  /** Forgets pages outside the pool; their positions are evicted. */
  dropPages(pageIds: readonly number[]): void;
  /** Forgets tokens from `numTokens` on, or from further ahead when no recurrent state is kept for that place. */
  truncate(numTokens: number): void;
  /** Forgets everything. */
  clear(): void;
  /** Gives up the blocks but remembers the tokens as `lost`. */
  preempt(): void;
  /** A second sequence with the same contents. */
  fork(): Sequence;
  free(): void;
}

/** @param salt sequences share blocks only with those of the same salt */
export function createSequence(pool: KvPool, salt = ''): Sequence {
  const heavyHitters = pool.heavyHitters && createHeavyHitters(pool.heavyHitters);
  return overView(pool, salt, pool.manager.createSequence({ salt }), pool.states?.allocate(), heavyHitters);
}

/** A sequence with saved contents; the caller fills its blocks and the state's `to` row, then calls `commit`. */
export function restoreSequence(pool: KvPool, contents: SequenceContents, salt = ''): Sequence {
  const state = pool.states?.allocate();
  if (contents.tokens.length > 0) state?.prepare();
  try {
    const heavyHitters = pool.heavyHitters && createHeavyHitters(pool.heavyHitters);
    return overView(pool, salt, pool.manager.restoreSequence({ ...contents, salt }), state, heavyHitters);
  } catch (error) {
    state?.free();
    throw error;
  }
}

function overView(
  pool: KvPool,
  salt: string,
  first: SequenceView,
  state: StateSlot | undefined,
  heavyHitters: HeavyHitters | undefined,
): Sequence {
  const { manager, memory, states } = pool;
  let view = first;
  let lost: Int32Array | undefined;

  const acceptPrefix = (contentId: number): boolean => states === undefined || states.hasSnapshot(contentId);
  const contentIdAt = (numTokens: number): number | undefined => manager.contentId(view.id, numTokens);

  function cut(numTokens: number): void {
    memory.queue(manager.truncate(view.id, numTokens));
    heavyHitters?.truncate(numTokens);
    pool.onFreed();
  }

  return {
    get view(): SequenceView {
      return view;
    },
    state,
    heavyHitters,
    get lost(): Int32Array | undefined {
      return lost;
    },
    begin(tokens, mayHaveGaps): number {
      lost = undefined;
      // the last token is always computed, because its logits are needed
      const prefix = tokens.subarray(0, tokens.length - 1);
      let numKept = sharedPrefix(view.tokens, prefix);
      if (view.numEvicted > 0 && !(mayHaveGaps && numKept === view.numTokens)) numKept = 0;
      if (state !== undefined) numKept = state.reach(numKept, contentIdAt);
      if (manager.countCached(prefix, salt) > numKept) {
        const found = manager.createSequence({ prefix, salt, acceptPrefix });
        const isBetter = found.numTokens > numKept;
        memory.queue(manager.free(isBetter ? view.id : found.id));
        if (isBetter) {
          view = found;
          numKept = found.numTokens;
          state?.restore(numKept, contentIdAt);
        }
      }
      if (numKept < view.numTokens) {
        cut(numKept);
        state?.restore(numKept, contentIdAt);
      }
      pool.onFreed();
      return numKept;
    },
    append(tokens): AppendedSlots {
      state?.prepare();
      const appended = manager.append(view.id, tokens);
      memory.queue(appended);
      return appended;
    },
    commit(hasState, masses): void {
      manager.commit(view.id);
      if (masses !== undefined) heavyHitters?.addMass(view.positions, masses);
      if (!hasState) state?.keep(view.numTokens);
      else if (state !== undefined && state.to >= 0) state.commit(view.numTokens, contentIdAt(view.numTokens));
      if (lost !== undefined && view.numTokens >= lost.length) lost = undefined;
    },
    rollback(): void {
      memory.queue(manager.rollback(view.id));
      state?.rollback();
      pool.onFreed();
    },
    evict(logicalSlots): void {
      memory.queue(manager.evict(view.id, logicalSlots));
      pool.report({ kind: 'evicted', numTokens: logicalSlots.length });
      pool.onFreed();
    },
    dropPages(pageIds): void {
      const before = view.numEvicted;
      memory.queue(manager.dropPages(view.id, pageIds));
      pool.report({ kind: 'evicted', numTokens: view.numEvicted - before });
    },
    truncate(numTokens): void {
      lost = undefined;
      const wanted = Math.min(numTokens, view.numTokens);
      const numKept = state === undefined ? wanted : state.reach(wanted, contentIdAt);
      if (numKept === view.numTokens) return;
      cut(numKept);
      state?.restore(numKept, contentIdAt);
    },
    clear(): void {
      lost = undefined;
      cut(0);
      state?.restore(0, contentIdAt);
    },
    preempt(): void {
      lost ??= view.tokens.slice();
      cut(0);
      state?.restore(0, contentIdAt);
    },
    fork(): Sequence {
      return overView(pool, salt, manager.fork(view.id), state?.fork(), heavyHitters?.fork());
    },
    free(): void {
      memory.queue(manager.free(view.id));
      state?.free();
      pool.onFreed();
    },
  };
}

/** How many leading tokens of `tokens` are cached already. */
export function sharedPrefix(cached: ArrayLike<number>, tokens: ArrayLike<number>): number {
  const length = Math.min(cached.length, tokens.length);
  for (let i = 0; i < length; i++) if (cached[i] !== tokens[i]) return i;
  return length;
}
