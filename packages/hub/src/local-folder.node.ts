/** A folder on the disk. */
import { readdir } from 'node:fs/promises';
import { basename, join, resolve } from 'node:path';
import { fileSource } from '@winnow/bytes/node';
import { CapacityError, IoError } from '@winnow/tensor';
import { checkFileName, isSafeFileName } from './file-name.js';
import type { HubFiles } from './files.js';
import { MAX_FILES } from './limits.js';
import { sizeIfFile } from './part-file.node.js';

/**
 * The files of a folder and its subfolders, without hidden ones. Symbolic links to files are followed (the cache of the
 * Hugging Face tools consists of them), links to folders are not.
 */
export function localFolder(path: string): HubFiles {
  const root = resolve(path);
  return {
    name: path,
    async list() {
      const names: string[] = [];
      await walk(root, '', names);
      return names.sort();
    },
    async has(name) {
      return isSafeFileName(name) && (await sizeIfFile(join(root, name))) !== undefined;
    },
    async open(name) {
      checkFileName(name);
      return fileSource(join(root, name));
    },
  };
}

async function walk(root: string, prefix: string, names: string[]): Promise<void> {
  const folder = join(root, prefix);
  let entries;
  try {
    entries = await readdir(folder, { withFileTypes: true });
  } catch (cause) {
    const message = cause instanceof Error ? cause.message : String(cause);
    throw new IoError({ source: folder, message: `cannot be listed: ${message}` }, { cause });
  }
  for (const entry of entries) {
    const name = prefix + entry.name;
    if (entry.name.startsWith('.') || !isSafeFileName(name)) continue;
    if (entry.isDirectory()) await walk(root, `${name}/`, names);
    else if (entry.isFile() || (entry.isSymbolicLink() && (await sizeIfFile(join(root, name))) !== undefined)) {
      names.push(name);
    }
    if (names.length > MAX_FILES) {
      throw new CapacityError({ resource: basename(root), needed: names.length, available: MAX_FILES, unit: 'files' });
    }
  }
}
