/**
 * Rows of recurrent states as plain data: which row holds the state of which sequence after how many tokens. A step reads
 * one row and writes another, so that a failed step loses nothing; rows that no sequence needs any more stay as snapshots
 * until their place is wanted, oldest first.
 */
import { CapacityError, invariant } from '@winnow/tensor';

/** A state after the first `numTokens` tokens of a sequence. */
interface StateAt {
  readonly row: number;
  readonly numTokens: number;
}

/** The states of one sequence. */
export interface StateSlot {
  /** Row that the next step reads; -1: it begins with zeros. */
  readonly from: number;
  /** Row that the step writes; -1 outside of steps. */
  readonly to: number;
  /** Chooses the row that a step will write. @throws {CapacityError} */
  prepare(): void;
  /** @param contentId name of the whole blocks before `numTokens`, if they have one: the state becomes findable by it */
  commit(numTokens: number, contentId: number | undefined): void;
  /** The step had no use for states: the one there was stands for `numTokens` tokens now. */
  keep(numTokens: number): void;
  rollback(): void;
  /** The longest `m <= numTokens` whose state is there; 0 needs none. `contentIdAt` names whole blocks of the sequence. */
  reach(numTokens: number, contentIdAt: (numTokens: number) => number | undefined): number;
  /** Goes back to the state after `numTokens` tokens, which `reach` gave. */
  restore(numTokens: number, contentIdAt: (numTokens: number) => number | undefined): void;
  fork(): StateSlot;
  free(): void;
}

export interface StateRows {
  readonly numRows: number;
  allocate(): StateSlot;
  hasSnapshot(contentId: number): boolean;
  /** Call it when the content leaves the cache. */
  dropSnapshot(contentId: number): void;
  readonly numSnapshots: number;
}

/** @param blockSize states are findable after whole blocks */
export function createStateRows(numRows: number, blockSize: number): StateRows {
  const free = Array.from({ length: numRows }, (_, index) => numRows - 1 - index);
  const refCounts = new Int32Array(numRows);
  /** By content; insertion order: the oldest first. */
  const snapshots = new Map<number, StateAt>();

  function take(): number {
    while (free.length === 0 && snapshots.size > 0) {
      const [oldest] = snapshots.keys();
      drop(oldest as number);
    }
    const row = free.pop();
    if (row === undefined) {
      throw new CapacityError({ resource: 'recurrent states', needed: 1, available: 0, unit: 'rows' });
    }
    refCounts[row] = 1;
    return row;
  }

  function release(row: number): void {
    const count = refCounts[row] as number;
    invariant(count > 0, `state row ${row} is in use`);
    refCounts[row] = count - 1;
    if (count === 1) free.push(row);
  }

  function retain(row: number): void {
    refCounts[row] = (refCounts[row] as number) + 1;
  }

  function drop(contentId: number): void {
    const snapshot = snapshots.get(contentId);
    if (snapshot === undefined) return;
    snapshots.delete(contentId);
    release(snapshot.row);
  }

  function slotOver(initial: StateAt | undefined): StateSlot {
    let current = initial;
    let target = -1;
    return {
      get from(): number {
        return current?.row ?? -1;
      },
      get to(): number {
        return target;
      },
      prepare(): void {
        if (target < 0) target = take();
      },
      commit(numTokens, contentId): void {
        if (current !== undefined) release(current.row);
        current = { row: target, numTokens };
        target = -1;
        if (contentId === undefined || snapshots.has(contentId)) return;
        retain(current.row);
        snapshots.set(contentId, current);
      },
      keep(numTokens): void {
        if (target >= 0) release(target);
        target = -1;
        if (current !== undefined) current = { row: current.row, numTokens };
      },
      rollback(): void {
        if (target >= 0) release(target);
        target = -1;
      },
      reach(numTokens, contentIdAt): number {
        if (current !== undefined && current.numTokens === numTokens) return numTokens;
        for (let at = numTokens - (numTokens % blockSize); at > 0; at -= blockSize) {
          const contentId = contentIdAt(at);
          if (contentId !== undefined && snapshots.has(contentId)) return at;
        }
        return current !== undefined && current.numTokens <= numTokens ? current.numTokens : 0;
      },
      restore(numTokens, contentIdAt): void {
        if (current?.numTokens === numTokens) return;
        const contentId = numTokens === 0 ? undefined : contentIdAt(numTokens);
        const snapshot = contentId === undefined ? undefined : snapshots.get(contentId);
        invariant(numTokens === 0 || snapshot !== undefined, `there is a state after ${numTokens} tokens`);
        if (snapshot !== undefined) {
          retain(snapshot.row);
          snapshots.delete(contentId as number); // the newest now
          snapshots.set(contentId as number, snapshot);
        }
        if (current !== undefined) release(current.row);
        current = snapshot;
      },
      fork(): StateSlot {
        if (current !== undefined) retain(current.row);
        return slotOver(current);
      },
      free(): void {
        if (target >= 0) release(target);
        if (current !== undefined) release(current.row);
        target = -1;
        current = undefined;
      },
    };
  }

  return {
    numRows,
    allocate: () => slotOver(undefined),
    hasSnapshot: (contentId) => snapshots.has(contentId),
    dropSnapshot: drop,
    get numSnapshots(): number {
      return snapshots.size;
    },
  };
}
