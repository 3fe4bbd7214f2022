/** The models in a folder: GGUF files and folders with a `config.json`. */
import type { Dirent } from 'node:fs';
import { readdir, realpath, stat } from 'node:fs/promises';
import { join } from 'node:path';

/** A model on this computer. */
export interface LocalModel {
  /** The path in the folder, with slashes, and without `.gguf`. */
  readonly id: string;
  /** Other names: that of the file. */
  readonly aliases: readonly string[];
  readonly path: string;
  readonly sizeBytes: number;
  readonly modifiedMs: number;
}

/** `owner/repo/model.gguf`, as LM Studio stores models. */
const maxDepth = 3;
/** Bounds the time of scanning a folder that is not a folder of models. */
const maxEntries = 20_000;

const weightFile = /\.(gguf|safetensors)$/i;
/** Parts of a split model after the first, and projectors of images. */
const notAModel = /-(?!00001-of-)\d{5}-of-\d{5}\.gguf$|^mmproj\b/i;

/**
 * The models by id. Names from clients are looked up here and never become a path. Links that the owner of the folder
 * has put there are followed, each folder once; hidden files are not listed.
 * @throws the error of the file system when the folder cannot be read
 */
export async function scanModels(folder: string): Promise<ReadonlyMap<string, LocalModel>> {
  const { found } = await scan(folder, '', maxDepth, { found: [], folders: new Set(), numEntries: 0 });
  const models = new Map<string, LocalModel>();
  for (const model of found) {
    const [file = model.id] = model.aliases;
    // a folder `a` and a file `a.gguf` are two models
    const id = models.has(model.id) ? file : model.id;
    if (!models.has(id)) models.set(id, { ...model, id });
  }
  return models;
}

interface Scan {
  readonly found: LocalModel[];
  /** Real paths. */
  readonly folders: Set<string>;
  numEntries: number;
}

async function scan(folder: string, prefix: string, depth: number, state: Scan): Promise<Scan> {
  const { found, folders } = state;
  const real = await realpath(folder);
  if (folders.has(real)) return state;
  folders.add(real);
  const entries = (await readdir(folder, { withFileTypes: true })).toSorted(foldersFirst);
  for (const entry of entries) {
    if (entry.name.startsWith('.') || ++state.numEntries > maxEntries) continue;
    const path = join(folder, entry.name);
    const id = prefix + entry.name;
    const stats = await stat(path).catch(() => undefined); // a dangling link, or an entry that was just removed
    if (stats?.isFile() === true && weightFile.test(entry.name) && !notAModel.test(entry.name)) {
      const short = id.replace(/(-00001-of-\d{5})?\.gguf$/i, '');
      const { size: sizeBytes, mtimeMs: modifiedMs } = stats;
      found.push({ id: short, aliases: short === id ? [] : [id], path, sizeBytes, modifiedMs });
    } else if (stats?.isDirectory() === true) {
      const own = await folderModel(path, id);
      if (own !== undefined) found.push(own);
      else if (depth > 1) await scan(path, `${id}/`, depth - 1, state).catch(() => {}); // one that cannot be read
    }
  }
  return state;
}

const foldersFirst = (a: Dirent, b: Dirent): number =>
  Number(b.isDirectory()) - Number(a.isDirectory()) || (a.name < b.name ? -1 : 1);

/** A folder with the settings of a model. */
async function folderModel(path: string, id: string): Promise<LocalModel | undefined> {
  const config = await stat(join(path, 'config.json')).catch(() => undefined);
  if (config?.isFile() !== true) return undefined;
  const names = (await readdir(path)).filter((name) => weightFile.test(name));
  const sizes = await Promise.all(
    names.map(async (name) => (await stat(join(path, name)).catch(() => undefined))?.size),
  );
  const sizeBytes = sizes.reduce<number>((total, size) => total + (size ?? 0), 0);
  return { id, aliases: [], path, sizeBytes, modifiedMs: config.mtimeMs };
}
