/** Models and cold files in memory, where thousands of small reads take a fraction of their time in the file system. */
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { memorySource, type ByteSource } from '@winnow/bytes';
import { memoryFolder } from '@winnow/hub';
import { memoryPageFile } from '@winnow/kv-cache';
import type { ColdFiles, ModelLocation } from '../../src/index.js';

/** The file or the files of the folder, for any number of loads. */
export function inMemory(location: string | URL): ModelLocation {
  const path = location instanceof URL ? fileURLToPath(location) : location;
  if (!statSync(path).isDirectory()) return openedFile(path);
  const names = readdirSync(path).filter((name) => statSync(join(path, name)).isFile());
  return memoryFolder(Object.fromEntries(names.map((name) => [name, readFileSync(join(path, name))])));
}

function openedFile(path: string): ByteSource {
  const source = memorySource(readFileSync(path), basename(path));
  const { name, sizeBytes } = source;
  return { name, sizeBytes, read: (...range) => source.read(...range), close: async () => undefined };
}

export const coldFilesInMemory: ColdFiles = { create: async (name) => memoryPageFile({ name }) };
