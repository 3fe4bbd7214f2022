/**
 * Bookkeeping of recurrent states: which row holds the state of which sequence after how many tokens. A step reads one
 * row and writes another, so a failed step loses nothing. Rows that no sequence needs stay as snapshots until they are
 * reused, oldest first.
 */
import { CapacityError, invariant, LruMap } from '@winnow/tensor';

/** A state after the first `numTokens` tokens of a sequence. */
interface StateAt {
  readonly row: number;
  readonly numTokens: number;
}

/** The content id of the first `numTokens` tokens of a sequence, for whole blocks. */
export type ContentIdAt = (numTokens: number) => number | undefined;

export class StateRows {
  readonly numRows: number;
  /** Snapshots are taken after whole blocks. */
  readonly blockSize: number;
  readonly #free: number[];
  readonly #refCounts: Int32Array;
  /** By content id. */
  readonly #snapshots = new LruMap<number, StateAt>();

  constructor(numRows: number, blockSize: number) {
    this.numRows = numRows;
    this.blockSize = blockSize;
    this.#free = Array.from({ length: numRows }, (_, index) => numRows - 1 - index);
    this.#refCounts = new Int32Array(numRows);
  }

  get numSnapshots(): number {
    return this.#snapshots.size;
  }

  /** The state of a new sequence: no tokens. */
  createSlot(): StateSlot {
    return new StateSlot(this);
  }

  hasSnapshot(contentId: number): boolean {
    return this.#snapshots.has(contentId);
  }

  /** Retains the row of a snapshot, which becomes the newest one. */
  retainSnapshot(contentId: number): StateAt | undefined {
    const snapshot = this.#snapshots.get(contentId);
    if (snapshot === undefined) return undefined;
    this.retain(snapshot.row);
    return snapshot;
  }

  /** Keeps a state as the snapshot of a content id. */
  addSnapshot(contentId: number, state: StateAt): void {
    if (this.#snapshots.has(contentId)) return;
    this.retain(state.row);
    this.#snapshots.set(contentId, state);
  }

  /** Call it when the content leaves the cache. */
  dropSnapshot(contentId: number): void {
    const snapshot = this.#snapshots.remove(contentId);
    if (snapshot !== undefined) this.release(snapshot.row);
  }

  /** @throws {CapacityError} when all rows are in use */
  allocate(): number {
    while (this.#free.length === 0 && this.#snapshots.size > 0) {
      const [oldest] = this.#snapshots.keys();
      this.dropSnapshot(oldest as number);
    }
    const row = this.#free.pop();
    if (row === undefined) {
      throw new CapacityError({
        resource: 'recurrent states',
        needed: 1,
        available: 0,
        unit: 'rows',
        hint: 'close a session, or raise maxSessions',
      });
    }
    this.#refCounts[row] = 1;
    return row;
  }

  retain(row: number): void {
    this.#refCounts[row] = (this.#refCounts[row] as number) + 1;
  }

  release(row: number): void {
    const count = this.#refCounts[row] as number;
    invariant(count > 0, `state row ${row} is in use`);
    this.#refCounts[row] = count - 1;
    if (count === 1) this.#free.push(row);
  }
}

/** The recurrent state of one sequence. */
export class StateSlot {
  readonly #rows: StateRows;
  #current: StateAt | undefined;
  #target = -1;

  /** @param current a retained row */
  constructor(rows: StateRows, current?: StateAt) {
    this.#rows = rows;
    this.#current = current;
  }

  /** Row that the next step reads; -1: zeros. */
  get from(): number {
    return this.#current?.row ?? -1;
  }

  /** Row that the step writes; -1 outside of steps. */
  get to(): number {
    return this.#target;
  }

  /** Allocates the row that a step will write. @throws {CapacityError} */
  prepare(): void {
    if (this.#target < 0) this.#target = this.#rows.allocate();
  }

  /**
   * Commits the row that the step wrote. With a content id, which identifies whole blocks, the state becomes a
   * snapshot.
   */
  commit(numTokens: number, contentId: number | undefined): void {
    this.#releaseCurrent();
    this.#current = { row: this.#target, numTokens };
    this.#target = -1;
    if (contentId !== undefined) this.#rows.addSnapshot(contentId, this.#current);
  }

  /** Keeps the state of a step without state: it now belongs to `numTokens` tokens. */
  keep(numTokens: number): void {
    this.rollback();
    if (this.#current !== undefined) this.#current = { row: this.#current.row, numTokens };
  }

  rollback(): void {
    if (this.#target >= 0) this.#rows.release(this.#target);
    this.#target = -1;
  }

  /** The largest `m <= numTokens` whose state is available; 0 needs none. */
  reach(numTokens: number, contentIdAt: ContentIdAt): number {
    const { blockSize } = this.#rows;
    const current = this.#current;
    if (current !== undefined && current.numTokens === numTokens) return numTokens;
    for (let at = numTokens - (numTokens % blockSize); at > 0; at -= blockSize) {
      const contentId = contentIdAt(at);
      if (contentId !== undefined && this.#rows.hasSnapshot(contentId)) return at;
    }
    return current !== undefined && current.numTokens <= numTokens ? current.numTokens : 0;
  }

  /** Goes back to the state after `numTokens` tokens, a result of `reach`. */
  restore(numTokens: number, contentIdAt: ContentIdAt): void {
    if (this.#current?.numTokens === numTokens) return;
    const contentId = numTokens === 0 ? undefined : contentIdAt(numTokens);
    const snapshot = contentId === undefined ? undefined : this.#rows.retainSnapshot(contentId);
    invariant(numTokens === 0 || snapshot !== undefined, `there is a state after ${numTokens} tokens`);
    this.#releaseCurrent();
    this.#current = snapshot;
  }

  fork(): StateSlot {
    if (this.#current !== undefined) this.#rows.retain(this.#current.row);
    return new StateSlot(this.#rows, this.#current);
  }

  free(): void {
    this.rollback();
    this.#releaseCurrent();
    this.#current = undefined;
  }

  #releaseCurrent(): void {
    if (this.#current !== undefined) this.#rows.release(this.#current.row);
  }
}
