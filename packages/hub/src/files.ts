/** The contract of a folder of model files, and two implementations that need no file system. */
import { blobSource, memorySource, type ByteSource } from '@winnow/bytes';
import { IoError } from '@winnow/tensor';
import { checkFileName } from './file-name.js';

/** Files by name. A name is relative to the folder, with `/` between parts: `config.json`, `1_Pooling/config.json`. */
export interface HubFiles {
  /** Name of the folder in error messages. */
  readonly name: string;
  /** Names of all files, sorted. */
  list(): Promise<readonly string[]>;
  has(name: string): Promise<boolean>;
  /** @throws {IoError} when there is no such file or it cannot be opened */
  open(name: string): Promise<ByteSource>;
}

/** A folder in memory. Strings are stored as UTF-8. */
export function memoryFolder(files: Readonly<Record<string, Uint8Array | string>>, name = 'memory'): HubFiles {
  const encoder = new TextEncoder();
  return folderOf(new Map(Object.entries(files)), name, (content, path) =>
    memorySource(typeof content === 'string' ? encoder.encode(content) : content, path),
  );
}

/** A folder of `Blob`s, such as the files that a user selected or dropped in a browser. */
export function blobFolder(files: ReadonlyMap<string, Blob>, name = 'files'): HubFiles {
  return folderOf(files, name, blobSource);
}

function folderOf<T>(
  files: ReadonlyMap<string, T>,
  name: string,
  open: (content: T, path: string) => ByteSource,
): HubFiles {
  for (const fileName of files.keys()) checkFileName(fileName);
  return {
    name,
    list: async () => [...files.keys()].sort(),
    has: async (fileName) => files.has(fileName),
    async open(fileName) {
      const content = files.get(fileName);
      if (content === undefined) throw new IoError({ source: `${name}/${fileName}`, message: 'no such file' });
      return open(content, `${name}/${fileName}`);
    },
  };
}
