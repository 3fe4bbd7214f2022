/** For how long at least one read was under way. */
import type { ByteSource } from '@winnow/bytes';

export interface BusyTime {
  /** The same source, whose reads count. */
  watch(source: ByteSource): ByteSource;
  busyMs(): number;
}

export function createBusyTime(now: () => number): BusyTime {
  let numReads = 0;
  let since = 0;
  let totalMs = 0;
  return {
    watch: (source) => ({
      name: source.name,
      sizeBytes: source.sizeBytes,
      async read(byteOffset, target, options) {
        if (numReads++ === 0) since = now();
        try {
          await source.read(byteOffset, target, options);
        } finally {
          if (--numReads === 0) totalMs += now() - since;
        }
      },
      close: () => source.close(),
    }),
    busyMs: () => totalMs + (numReads > 0 ? now() - since : 0),
  };
}
