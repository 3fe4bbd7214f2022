/** Wraps a file handle of Node, with failures on demand. */
import { open } from 'node:fs/promises';
import type { RawFile } from '../src/index.node.js';

export interface Faults {
  /** Maximum number of bytes per read or write. */
  maxTransfer: number;
  /** Error code thrown by every read. */
  readError: string | undefined;
  writeError: string | undefined;
  /** Bytes that the failing write still writes. */
  writtenBeforeError: number;
  syncError: string | undefined;
}

export const systemError = (code: string): Error => Object.assign(new Error(`${code}: from the system`), { code });

export function faultyOpen(faults: Faults): (path: string, flags: string) => Promise<RawFile> {
  return async (path, flags) => {
    const file = await open(path, flags);
    return {
      async read(target, offset, length, position) {
        if (faults.readError !== undefined) throw systemError(faults.readError);
        return file.read(target, offset, Math.min(length, faults.maxTransfer), position);
      },
      async readv(targets, position) {
        if (faults.readError !== undefined) throw systemError(faults.readError);
        const bytes = new Uint8Array(targets.reduce((sum, { byteLength }) => sum + byteLength, 0));
        const { bytesRead } = await file.read(bytes, 0, Math.min(bytes.byteLength, faults.maxTransfer), position);
        let begin = 0;
        for (const target of targets) {
          target.set(bytes.subarray(begin, Math.min(begin + target.byteLength, Math.max(begin, bytesRead))));
          begin += target.byteLength;
        }
        return { bytesRead };
      },
      async write(bytes, offset, length, position) {
        if (faults.writeError !== undefined) {
          await file.write(bytes, offset, Math.min(length, faults.writtenBeforeError), position);
          throw systemError(faults.writeError);
        }
        return file.write(bytes, offset, Math.min(length, faults.maxTransfer), position);
      },
      async datasync() {
        if (faults.syncError !== undefined) throw systemError(faults.syncError);
        await file.datasync();
      },
      stat: () => file.stat(),
      close: () => file.close(),
    };
  };
}

export function noFaults(): Faults {
  return {
    maxTransfer: Infinity,
    readError: undefined,
    writeError: undefined,
    writtenBeforeError: 0,
    syncError: undefined,
  };
}
