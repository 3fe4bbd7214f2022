/** Where the cold tier keeps its files. Paths are left to the host. */
import type { PageFile } from '@winnow/kv-cache';

/** A place for temporary files of pages. */
export interface ColdFiles {
  /** Makes an empty file of this name, which nobody else uses. The file goes when it is closed. @throws {IoError} */
  create(name: string): Promise<PageFile>;
}

/** Opens the folders of the host. */
export type OpenColdFolder = (path: string | URL) => ColdFiles;

export function openCold(cold: string | URL | ColdFiles, openFolder: OpenColdFolder): ColdFiles {
  return typeof cold === 'string' || cold instanceof URL ? openFolder(cold) : cold;
}

/** The same file, which is removed when it is closed. */
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
