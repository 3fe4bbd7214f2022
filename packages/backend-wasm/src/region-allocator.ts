/**
 * Regions of a linear memory. Free regions `[begin, end)` are kept in order of their addresses, neighbours joined; a
 * request takes the first one that is large enough, else the memory grows.
 */

/** Start of every region: a cache line, of a large one a page, as processors fetch ahead within pages only. */
const alignment = 64;
const pageBytes = 4096;
const largeBytes = 16 * pageBytes;
/** Bytes after every region that belong to nobody, so that vector loads may run over an end. */
const slack = 64;

interface Region {
  begin: number;
  end: number;
}

export interface RegionAllocator {
  /** Address of `sizeBytes` bytes, or `undefined` when they do not fit. Regions that were used before hold old bytes. */
  allocate(sizeBytes: number): number | undefined;
  free(address: number): void;
  /** Bytes between the lowest and the highest address that were ever handed out. */
  readonly usedBytes: number;
}

/** @param ensure makes `[0, end)` usable, false when that is not possible */
export function createRegionAllocator(base: number, ensure: (end: number) => boolean): RegionAllocator {
  const free: Region[] = [];
  const sizes = new Map<number, number>();
  let top = base;
  let usedBytes = 0;

  function startIn(begin: number, sizeBytes: number): number {
    const unit = sizeBytes < largeBytes ? alignment : pageBytes;
    return Math.ceil(begin / unit) * unit;
  }

  function take(address: number, length: number): number {
    sizes.set(address, length);
    usedBytes += length;
    return address;
  }

  return {
    allocate(sizeBytes) {
      const length = Math.ceil((sizeBytes + slack) / alignment) * alignment;
      const index = free.findIndex(({ begin, end }) => startIn(begin, sizeBytes) + length <= end);
      if (index >= 0) {
        const region = free[index];
        const address = startIn(region.begin, sizeBytes);
        const parts = [
          { begin: region.begin, end: address },
          { begin: address + length, end: region.end },
        ];
        free.splice(index, 1, ...parts.filter(({ begin, end }) => begin < end));
        return take(address, length);
      }
      // the last free region may touch the top and only lack a part
      const last = free.at(-1);
      const begin = last !== undefined && last.end === top ? last.begin : top;
      const address = startIn(begin, sizeBytes);
      if (!ensure(address + length)) return undefined;
      if (begin !== top) free.pop();
      if (begin !== address) free.push({ begin, end: address });
      top = address + length;
      return take(address, length);
    },
    free(address) {
      const length = sizes.get(address) as number;
      sizes.delete(address);
      usedBytes -= length;
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
    },
    get usedBytes() {
      return usedBytes;
    },
  };
}
