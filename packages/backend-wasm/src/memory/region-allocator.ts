/**
 * Regions of a linear memory. First fit: free regions `[begin, end)` are sorted by address, with neighbors merged; a
 * request takes the first one that is large enough, else the memory grows.
 */

/** Alignment of regions: a cache line, or a page for large ones, since hardware prefetchers stop at page boundaries. */
const alignment = 64;
const pageBytes = 4096;
const largeBytes = 16 * pageBytes;
/** Padding after every region, so that vector loads may read past its end. */
const slack = 64;

interface Region {
  begin: number;
  end: number;
}

export class RegionAllocator {
  readonly #ensure: (end: number) => boolean;
  readonly #free: Region[] = [];
  readonly #sizes = new Map<number, number>();
  #top: number;
  #usedBytes = 0;

  /** @param ensure makes `[0, end)` usable; returns false on failure */
  constructor(base: number, ensure: (end: number) => boolean) {
    this.#top = base;
    this.#ensure = ensure;
  }

  /** Bytes of all regions in use, including padding. */
  get usedBytes(): number {
    return this.#usedBytes;
  }

  /** Allocates `sizeBytes` bytes, or returns `undefined` if they do not fit. The memory is not cleared. */
  allocate(sizeBytes: number): number | undefined {
    const length = Math.ceil((sizeBytes + slack) / alignment) * alignment;
    const index = this.#free.findIndex(({ begin, end }) => startIn(begin, sizeBytes) + length <= end);
    if (index < 0) return this.#grow(sizeBytes, length);
    const region = this.#free[index];
    const address = startIn(region.begin, sizeBytes);
    const parts = [
      { begin: region.begin, end: address },
      { begin: address + length, end: region.end },
    ];
    this.#free.splice(index, 1, ...parts.filter(({ begin, end }) => begin < end));
    return this.#take(address, length);
  }

  free(address: number): void {
    const free = this.#free;
    const length = this.#sizes.get(address) as number;
    this.#sizes.delete(address);
    this.#usedBytes -= length;
    const at = free.findIndex(({ begin }) => begin > address);
    const index = at < 0 ? free.length : at;
    free.splice(index, 0, { begin: address, end: address + length });
    if (index + 1 < free.length && free[index].end === free[index + 1].begin) {
      free[index].end = free[index + 1].end;
      free.splice(index + 1, 1);
    }
    if (index > 0 && free[index - 1].end === free[index].begin) {
      free[index - 1].end = free[index].end;
      free.splice(index, 1);
    }
  }

  /** Allocates at the top, extending the last free region if it is adjacent. */
  #grow(sizeBytes: number, length: number): number | undefined {
    const last = this.#free.at(-1);
    const begin = last !== undefined && last.end === this.#top ? last.begin : this.#top;
    const address = startIn(begin, sizeBytes);
    if (!this.#ensure(address + length)) return undefined;
    if (begin !== this.#top) this.#free.pop();
    if (begin !== address) this.#free.push({ begin, end: address });
    this.#top = address + length;
    return this.#take(address, length);
  }

  #take(address: number, length: number): number {
    this.#sizes.set(address, length);
    this.#usedBytes += length;
    return address;
  }
}

function startIn(begin: number, sizeBytes: number): number {
  const unit = sizeBytes < largeBytes ? alignment : pageBytes;
  return Math.ceil(begin / unit) * unit;
}
