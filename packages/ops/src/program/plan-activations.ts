/**
 * Places activation tensors in one arena so that tensors with overlapping lifetimes never share a byte. Largest first,
 * each at the lowest free offset: simple, deterministic, and close to the lower bound for layered models.
 */

/** One activation with its lifetime in record indices, both inclusive. */
export interface Lifetime {
  readonly sizeBytes: number;
  readonly firstRecord: number;
  readonly lastRecord: number;
}

/** Alignment of tensors in the arena: a cache line, and a vector of every instruction set. */
export const arenaAlignment = 64;

export function alignUp(value: number, alignment: number): number {
  return Math.ceil(value / alignment) * alignment;
}

/** Offsets in the order of `lifetimes`, and the size of the arena. Cost: quadratic in the number of tensors. */
export function planActivations(lifetimes: readonly Lifetime[]): { offsets: number[]; sizeBytes: number } {
  const order = lifetimes.map((_, index) => index);
  order.sort((a, b) => lifetimes[b].sizeBytes - lifetimes[a].sizeBytes || a - b);
  const offsets = new Array<number>(lifetimes.length).fill(0);
  const placed: number[] = []; // indices, by ascending offset
  let sizeBytes = 0;
  for (const index of order) {
    const { sizeBytes: needed, firstRecord, lastRecord } = lifetimes[index];
    let offset = 0;
    for (const other of placed) {
      const { firstRecord: otherFirst, lastRecord: otherLast, sizeBytes: otherSize } = lifetimes[other];
      if (otherFirst > lastRecord || otherLast < firstRecord) continue;
      if (offset + needed <= offsets[other]) break;
      offset = Math.max(offset, alignUp(offsets[other] + otherSize, arenaAlignment));
    }
    offsets[index] = offset;
    const position = placed.findIndex((other) => offsets[other] > offset);
    placed.splice(position < 0 ? placed.length : position, 0, index);
    sizeBytes = Math.max(sizeBytes, offset + needed);
  }
  return { offsets, sizeBytes: alignUp(sizeBytes, arenaAlignment) };
}
