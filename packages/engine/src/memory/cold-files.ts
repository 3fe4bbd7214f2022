/** Where the cold tier stores its files. The host opens paths. */
import type { PageFile } from '@winnow/kv-cache';

/** A place for temporary page files. */
export interface ColdFiles {
  /** Creates an empty file with this unique name. It is deleted when it is closed. @throws {IoError} */
  create(name: string): Promise<PageFile>;
}

/** Opens the folders of the host. */
export type OpenColdFolder = (path: string | URL) => ColdFiles;

export function openCold(cold: string | URL | ColdFiles, openFolder: OpenColdFolder): ColdFiles {
  return typeof cold === 'string' || cold instanceof URL ? openFolder(cold) : cold;
}

/** Wraps a file so that it is deleted when it is closed. */
export function deletedOnClose(file: PageFile, remove: () => Promise<void>): PageFile {
  return {
    name: file.name,
    get sizeBytes() {
      return file.sizeBytes;
    },
    read: (byteOffset, target) => file.read(byteOffset, target),
    write: (byteOffset, bytes) => file.write(byteOffset, bytes),
    sync: () => file.sync(),
    async close() {
      await file.close();
      await remove();
    },
  };
}
