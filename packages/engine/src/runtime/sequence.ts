/**
 * The cached tokens of one session: a sequence of the block manager that can be reused and share prefixes with others.
 */
import {
  createHeavyHitters,
  type AppendedSlots,
  type BlockChanges,
  type HeavyHitters,
  type SequenceContents,
  type SequenceView,
} from '@winnow/kv-cache';
import type { DeviceLostError } from '@winnow/tensor';
import { movesOn } from '../images/image-rows.js';
import type { Chunks } from './chunks.js';
import { EvictionLog } from './eviction-log.js';
import type { KvPool } from './kv-pool.js';
import type { ContentIdAt, StateSlot } from './state-rows.js';

/** Tokens of a sequence that one step computes: `tokens[offset, offset + count)`, at most a chunk. */
export interface StepPart {
  readonly sequence: Sequence;
  readonly tokens: Int32Array;
  readonly offset: number;
  readonly count: number;
  /** Which of the tokens need logits, relative to `offset`. */
  readonly outputRows: readonly number[];
}

const noSlots: AppendedSlots = {
  newBlocks: [],
  copies: [],
  clearedSlots: [],
  droppedPages: [],
  slots: new Int32Array(0),
  positions: new Int32Array(0),
};

interface SequenceParts {
  readonly pool: KvPool;
  readonly salt: string;
  readonly view: SequenceView;
  readonly state: StateSlot | undefined;
  readonly heavyHitters: HeavyHitters | undefined;
  readonly evictions: EvictionLog;
}

export class Sequence {
  /** The recurrent state, for models that have one. */
  readonly state: StateSlot | undefined;
  /** Attention mass per token, if eviction needs it. */
  readonly heavyHitters: HeavyHitters | undefined;
  readonly #pool: KvPool;
  readonly #salt: string;
  #view: SequenceView;
  #evictions: EvictionLog;
  #preempted: Int32Array | undefined;
  #appended = noSlots;
  /** What its rotation depends on, see `RotaryLengths.keyOf`. */
  #rotaryKey = 0;
  /** How many of its tokens before `end` move on; begins anew when tokens are replaced. */
  #moves = { end: 0, count: 0 };
  /** Set when its contents were lost with a device and cannot be recomputed, until a generation starts over. */
  #lost: DeviceLostError | undefined;
  readonly #contentIdAt: ContentIdAt = (numTokens) => this.#pool.manager.contentId(this.#view.id, numTokens);

  private constructor({ pool, salt, view, state, heavyHitters, evictions }: SequenceParts) {
    this.#pool = pool;
    this.#salt = salt;
    this.#view = view;
    this.state = state;
    this.heavyHitters = heavyHitters;
    this.#evictions = evictions;
    pool.sequences.add(this);
  }

  /** @param salt shares cached prefixes only with sequences of the same salt */
  /** @param cacheSalt the sequence shares prefixes only with those of the same salt */
  static create(pool: KvPool, cacheSalt?: string): Sequence {
    // the prefix keeps salts of callers apart from those of restored sequences
    const salt = cacheSalt === undefined ? '' : `salt ${cacheSalt}`;
    const heavyHitters = pool.heavyHitters && createHeavyHitters(pool.heavyHitters);
    const view = pool.manager.createSequence({ salt });
    const state = pool.states?.createSlot();
    return new Sequence({ pool, salt, view, state, heavyHitters, evictions: new EvictionLog() });
  }

  /**
   * A sequence with saved contents; the caller fills its blocks and the state's `to` row, then calls `commit`. It shares
   * blocks with its forks and with sequences restored from the same authenticated contents, since a file that is not
   * authenticated may be forged.
   * @param mac of the file, if it was verified
   * @param rotaryKey of the saved sequence
   */
  static restore(pool: KvPool, contents: SequenceContents, mac: string | undefined, rotaryKey = 0): Sequence {
    const salt = mac === undefined ? uniqueSalt() : `restored, MAC ${mac}`;
    const state = pool.states?.createSlot();
    if (contents.tokens.length > 0) state?.prepare();
    try {
      const heavyHitters = pool.heavyHitters && createHeavyHitters(pool.heavyHitters);
      const view = pool.manager.restoreSequence({ ...contents, salt: saltOf(salt, rotaryKey) });
      const evictions = new EvictionLog(view.numEvicted === 0);
      const sequence = new Sequence({ pool, salt, view, state, heavyHitters, evictions });
      sequence.#rotaryKey = rotaryKey;
      return sequence;
    } catch (error) {
      state?.free();
      throw error;
    }
  }

  /** Cached prefixes are shared only among sequences of the same salt. */
  get salt(): string {
    return saltOf(this.#salt, this.#rotaryKey);
  }

  /** What its rotation depends on; 0 for the usual frequencies. */
  get rotaryKey(): number {
    return this.#rotaryKey;
  }

  /** The row of RoPE frequencies of a position. */
  rotaryRow(position: number): number {
    return this.#pool.rotaryLengths?.rowOf(this.#rotaryKey, position) ?? 0;
  }

  /** The rotary position of a token in models with M-RoPE: the number of tokens before it that move on. */
  imagePosition(position: number): number {
    const counted = position < this.#moves.end ? { end: 0, count: 0 } : this.#moves;
    const { tokens } = this.#view;
    for (; counted.end < position; counted.end++) counted.count += Number(movesOn(tokens[counted.end] as number));
    this.#moves = counted;
    return counted.count;
  }

  /** Rotates as for a prompt of that length; forgets all tokens if they are rotated otherwise. */
  rotateFor(numPrompt: number): void {
    const rotaryKey = this.#pool.rotaryLengths?.keyOf(numPrompt) ?? 0;
    if (rotaryKey === this.#rotaryKey) return;
    this.clear();
    this.#changeRotation(rotaryKey);
  }

  /** Whether keys have the same rotation with `count` more tokens. */
  keepsRotation(count: number): boolean {
    const numTokens = this.tokens.length + count;
    return this.#rotaryKey !== 0 || this.#pool.rotaryLengths?.changesAt(numTokens) !== true;
  }

  /** Prepares for `count` more tokens: where they change the rotation of all keys, the cached ones are computed anew. */
  grow(count: number): void {
    if (this.keepsRotation(count)) return;
    const numTokens = this.tokens.length + count;
    this.preempt();
    this.#changeRotation(this.#pool.rotaryLengths?.keyOf(numTokens) ?? 0);
  }

  /** Its view in the block manager. A new object after `begin`. */
  get view(): SequenceView {
    return this.#view;
  }

  /** Tokens of a preempted sequence, which are recomputed before anything else. */
  get preempted(): Int32Array | undefined {
    return this.#preempted;
  }

  /** The log of evictions. */
  get evictions(): EvictionLog {
    return this.#evictions;
  }

  /** What the next step may recompute of a preempted sequence: tokens up to the next eviction. */
  recomputation(chunks: Chunks): StepPart | undefined {
    const tokens = this.#preempted;
    if (tokens === undefined) return undefined;
    const offset = this.#view.numTokens;
    const end = chunks.endOf(tokens, offset, this.#evictions.next?.numTokens ?? tokens.length);
    return { sequence: this, tokens, offset, count: end - offset, outputRows: [] };
  }

  /** The slots of the last `append`. */
  get appended(): AppendedSlots {
    return this.#appended;
  }

  /**
   * Sets its contents to the longest cached prefix of `tokens`, its own or that of another sequence. The last token is
   * never part of it, because its logits are needed.
   * @param mayHaveGaps whether contents with evicted positions may be kept
   * @param isContinued whether it continues a generation, whose prompt decided on its rotation
   * @returns how many leading tokens are cached
   */
  begin(tokens: Int32Array, mayHaveGaps: boolean, isContinued = false): number {
    this.#preempted = undefined;
    this.#lost = undefined;
    if (!isContinued) this.rotateFor(tokens.length);
    const prefix = tokens.subarray(0, tokens.length - 1);
    let numKept = this.#ownPrefix(prefix, mayHaveGaps);
    if (this.#pool.manager.countCached(prefix, this.salt) > numKept) numKept = this.#takeOver(prefix, numKept);
    if (numKept < this.#view.numTokens) this.#cut(numKept);
    this.#evictions.truncate(numKept);
    this.#pool.onFreed();
    return numKept;
  }

  /** Allocates slots for the tokens of a step. @throws {CapacityError} */
  append(tokens: Int32Array): void {
    if (this.#lost !== undefined) throw this.#lost;
    this.state?.prepare();
    this.#appended = this.#pool.manager.append(this.#view.id, tokens);
    this.#pool.apply(this.#appended);
  }

  /**
   * Commits the first `numKept` tokens of a step, by default all, and their state if the program has one. A state and attention
   * masses belong to all tokens of the step: a step with them that cannot be kept as a whole is rolled back.
   * @param masses attention mass that the step adds to each logical slot
   * @returns the number of tokens that were committed
   */
  commit(hasState: boolean, masses?: Float64Array, numKept: number = this.#appended.slots.length): number {
    const view = this.#view;
    const { state } = this;
    if (numKept < this.#appended.slots.length) {
      if (hasState || masses !== undefined) {
        this.rollback();
        return 0;
      }
      this.#free(this.#pool.manager.truncate(view.id, view.numCommitted + numKept));
    }
    this.#pool.manager.commit(view.id);
    if (masses !== undefined) this.heavyHitters?.addMass(view.positions, masses);
    if (!hasState) state?.keep(view.numTokens);
    else if (state !== undefined && state.to >= 0) state.commit(view.numTokens, this.#contentIdAt(view.numTokens));
    if (this.#preempted === undefined) return numKept;
    this.#repeatEvictions();
    if (view.numTokens >= this.#preempted.length) this.#preempted = undefined;
    return numKept;
  }

  /** Rolls back a failed step. */
  rollback(): void {
    this.#free(this.#pool.manager.rollback(this.#view.id));
    this.state?.rollback();
  }

  /** Drops positions from the pool; logical slots as in `BlockManager.evict`. */
  evict(logicalSlots: readonly number[]): void {
    const { numTokens, positions } = this.#view;
    this.#evictions.add(
      numTokens,
      logicalSlots.map((slot) => positions[slot] as number),
    );
    this.#free(this.#pool.manager.evict(this.#view.id, logicalSlots));
    this.#pool.report({ kind: 'evicted', numTokens: logicalSlots.length });
  }

  /** Drops offloaded pages; their positions count as evicted. */
  dropPages(pageIds: readonly number[]): void {
    const { numTokens, numEvicted: before, detachedPages } = this.#view;
    const dropped = detachedPages.filter(({ pageId }) => pageIds.includes(pageId));
    const positions = dropped.flatMap((page) => [...page.positions]);
    this.#evictions.add(
      numTokens,
      positions.filter((position) => position >= 0),
    );
    this.#pool.apply(this.#pool.manager.dropPages(this.#view.id, pageIds));
    this.#pool.report({ kind: 'evicted', numTokens: this.#view.numEvicted - before });
  }

  /** All tokens, whether they are cached or to be recomputed. */
  get tokens(): Int32Array {
    return this.#preempted ?? this.#view.tokens.subarray(0, this.#view.numCommitted);
  }

  /** Forgets tokens from `numTokens` on, or from an earlier position if there is no recurrent state for that one. */
  truncate(numTokens: number): void {
    if (this.#preempted !== undefined && numTokens > this.#view.numTokens) {
      this.#preempted = this.#preempted.slice(0, numTokens);
      this.#evictions.truncate(numTokens);
      return;
    }
    this.#preempted = undefined;
    const wanted = Math.min(numTokens, this.#view.numTokens);
    const numKept = this.state === undefined ? wanted : this.state.reach(wanted, this.#contentIdAt);
    if (numKept < this.#view.numTokens) this.#cut(numKept);
    this.#evictions.truncate(numKept);
  }

  /** Forgets all tokens. */
  clear(): void {
    this.#lost = undefined;
    this.#preempted = undefined;
    this.#cut(0);
    this.#evictions.truncate(0);
  }

  /** Marks its contents as lost with the device: a generation in progress fails. */
  lose(lost: DeviceLostError): void {
    this.clear();
    this.#lost = lost;
  }

  /** Frees the blocks but keeps the tokens for recomputation. */
  preempt(): void {
    if (this.#view.numTokens > 0) this.#preempted ??= this.#view.tokens.slice();
    this.#cut(0);
    this.#evictions.rewind();
  }

  /** A second sequence with the same contents. */
  fork(): Sequence {
    const fork = new Sequence({
      pool: this.#pool,
      salt: this.#salt,
      view: this.#pool.manager.fork(this.#view.id),
      state: this.state?.fork(),
      heavyHitters: this.heavyHitters?.fork(),
      evictions: this.#evictions.fork(),
    });
    fork.#rotaryKey = this.#rotaryKey;
    fork.#preempted = this.#preempted;
    fork.#lost = this.#lost;
    return fork;
  }

  free(): void {
    this.#pool.sequences.delete(this);
    this.state?.free();
    this.#free(this.#pool.manager.free(this.#view.id));
  }

  /** Continues with another rotation; it must hold no tokens. */
  #changeRotation(rotaryKey: number): void {
    const { manager } = this.#pool;
    const { id } = this.#view;
    this.#rotaryKey = rotaryKey;
    this.#view = manager.createSequence({ salt: this.salt });
    this.#free(manager.free(id));
  }

  /** Number of leading tokens of `prefix` that the sequence holds and can continue from. */
  #ownPrefix(prefix: Int32Array, mayHaveGaps: boolean): number {
    const { tokens, numTokens, numEvicted } = this.#view;
    let numKept = sharedPrefix(tokens, prefix);
    if (numEvicted > 0 && !(mayHaveGaps && numKept === numTokens)) numKept = 0;
    return this.state === undefined ? numKept : this.state.reach(numKept, this.#contentIdAt);
  }

  /** Continues from blocks of other sequences if they hold more than `numKept` tokens of `prefix`. */
  #takeOver(prefix: Int32Array, numKept: number): number {
    const { manager, states } = this.#pool;
    const acceptPrefix = (contentId: number): boolean => states === undefined || states.hasSnapshot(contentId);
    const found = manager.createSequence({ prefix, salt: this.salt, acceptPrefix });
    const isBetter = found.numTokens > numKept;
    this.#pool.apply(manager.free(isBetter ? this.#view.id : found.id));
    if (!isBetter) return numKept;
    this.#view = found;
    this.#moves = { end: 0, count: 0 };
    this.#evictions = new EvictionLog();
    this.state?.restore(found.numTokens, this.#contentIdAt);
    return found.numTokens;
  }

  /** Forgets tokens from `numTokens` on; there must be a recurrent state for that position. */
  #cut(numTokens: number): void {
    this.#moves = { end: 0, count: 0 };
    const changes = this.#pool.manager.truncate(this.#view.id, numTokens);
    this.heavyHitters?.truncate(numTokens);
    this.state?.restore(numTokens, this.#contentIdAt);
    this.#free(changes);
  }

  /** Repeats the evictions that happened when the sequence first had this many tokens. */
  #repeatEvictions(): void {
    for (;;) {
      const { next } = this.#evictions;
      if (next === undefined || next.numTokens > this.#view.numTokens) return;
      const evicted = new Set(next.positions);
      const slots = [...this.#view.positions.keys()].filter((slot) =>
        evicted.has(this.#view.positions[slot] as number),
      );
      this.#free(this.#pool.manager.evict(this.#view.id, slots));
      this.#evictions.noteRepeated();
    }
  }

  #free(changes: BlockChanges): void {
    this.#pool.apply(changes);
    this.#pool.onFreed();
  }
}

/** Of contents that may be forged: no sequence of this or another process finds their pages, not even in a prompt store. */
function uniqueSalt(): string {
  return `restored ${crypto.getRandomValues(new Uint32Array(4)).join('-')}`;
}

/** Keys with different rotations must not be shared. */
function saltOf(salt: string, rotaryKey: number): string {
  return rotaryKey === 0 ? salt : `${salt} rotary ${rotaryKey}`;
}

/** Number of leading tokens of `tokens` that are cached. */
export function sharedPrefix(cached: ArrayLike<number>, tokens: ArrayLike<number>): number {
  const length = Math.min(cached.length, tokens.length);
  for (let i = 0; i < length; i++) if (cached[i] !== tokens[i]) return i;
  return length;
}
