/** Converts between file paths. */
import { rm, stat } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import type { TensorStore } from '@winnow/bytes';
import { fileSink, fileSource, makeFolder } from '@winnow/bytes/node';
import { openGgufFile } from '@winnow/gguf/node';
import { denseModules, isColbert, oneFileFolder, openHubFolder, type HubFiles } from '@winnow/hub';
import { localFolder } from '@winnow/hub/node';
import { Fields, colbertStore, openDenseLayers } from '@winnow/models';
import { openSafetensors, openShardedSafetensors } from '@winnow/safetensors';
import { ArgumentError, checkOptions, FormatError, IoError, type OptionNames } from '@winnow/tensor';
import { convertToFolder } from './to-folder.js';
import { convertToGguf } from './to-gguf.js';
import { convertNames, type ConvertOptions, type ConvertResult, type ConvertSource } from './conversion.js';
import { readImportanceMatrix, type ImportanceMatrix } from './imatrix.js';
import { replaceFolder } from './replace-folder.node.js';
import type { ConvertTarget } from './write-files.js';

export interface ConvertFilesOptions extends ConvertOptions {
  /** Overwrite existing files. Default false: an existing file is an error. */
  readonly overwrite?: boolean;
  /** Path of an importance matrix, see `ConvertOptions.importance`. */
  readonly imatrix?: string;
}

const convertFilesNames: OptionNames<ConvertFilesOptions> = { ...convertNames, overwrite: true, imatrix: true };

/**
 * Converts the model at `source`: a GGUF file, a Hugging Face folder, or a safetensors file that contains a whole model. A
 * destination that ends in `.gguf` is a GGUF file, any other is a folder, which is created. Files appear only when all of
 * them are complete; a killed process leaves the old model, the new one or none, and never files of both.
 * @throws {ArgumentError} when the destination exists or is the source, or for contradictory options
 * @throws {FormatError} for a model that is not supported or that the target format cannot represent, and for an importance matrix
 *   of another model
 * @throws {IoError} when reading or writing fails, a full disk included
 */
export async function convertFiles(
  source: string,
  destination: string,
  options: ConvertFilesOptions = {},
): Promise<ConvertResult> {
  checkOptions(options, convertFilesNames);
  const { overwrite = false, imatrix, ...given } = options;
  const importance = imatrix === undefined ? given.importance : await openImportance(imatrix, options.signal);
  const convertOptions = { ...given, ...(importance === undefined ? {} : { importance }) };
  const isGguf = /\.gguf$/i.test(destination);
  if (!isGguf && !overwrite && (await kindOf(join(destination, 'config.json'))) !== undefined) {
    throw existing(destination);
  }
  const opened = await openSource(source, options.signal);
  try {
    if (isGguf) {
      const target = fileTarget(dirname(destination), overwrite);
      return await convertToGguf(opened, target, basename(destination), convertOptions);
    }
    if (opened.format !== 'gguf') {
      throw new ArgumentError({
        argument: 'destination',
        expected: 'a destination that ends in .gguf, because the source is a folder',
        actual: destination,
      });
    }
    if ((await kindOf(destination)) === 'file') throw existing(destination);
    return await replaceFolder(resolve(destination), (aside) =>
      convertToFolder(opened, fileTarget(destination, overwrite, aside), convertOptions),
    );
  } finally {
    await opened.file.store.close();
  }
}

async function openImportance(path: string, signal: AbortSignal | undefined): Promise<ImportanceMatrix> {
  const source = await fileSource(path);
  try {
    return await readImportanceMatrix(source, signal === undefined ? {} : { signal });
  } finally {
    await source.close();
  }
}

function existing(path: string): ArgumentError {
  return new ArgumentError({
    argument: 'destination',
    expected: 'a new file or folder, or overwrite: true',
    actual: path,
  });
}

async function kindOf(path: string): Promise<'file' | 'folder' | undefined> {
  try {
    return (await stat(path)).isDirectory() ? 'folder' : 'file';
  } catch {
    return undefined;
  }
}

/** @param aside the folder in which the files are written, if it is renamed to `folder` later */
function fileTarget(folder: string, overwrite: boolean, aside = folder): ConvertTarget {
  return {
    async open(name) {
      if (!overwrite && (await kindOf(join(folder, name))) !== undefined) throw existing(join(folder, name));
      const path = join(aside, name);
      await makeFolder(dirname(path));
      return fileSink(path);
    },
    async beforeVisible(names) {
      // an old first part would open the new parts as its own
      const [first, ...others] = names;
      if (first !== undefined && others.length > 0) await rm(join(aside, first), { force: true });
    },
  };
}

async function openSource(path: string, signal: AbortSignal | undefined): Promise<ConvertSource> {
  const withSignal = signal === undefined ? {} : { signal };
  const kind = await kindOf(path);
  if (kind === undefined) throw new IoError({ source: path, message: 'no such file or folder' });
  if (kind === 'file' && /\.safetensors$/i.test(path)) return openOneFile(path, withSignal);
  if (kind === 'file') {
    const gguf = await openGgufFile(path, withSignal);
    const fields = new Fields(gguf.name, (key) => gguf.metadata.get(key)?.value);
    return { format: 'gguf', gguf, file: { format: 'gguf', fields, store: gguf } };
  }
  return openFolder(localFolder(path), withSignal);
}

/** A model folder in one safetensors file, which is closed together with the weights. */
async function openOneFile(path: string, options: { signal?: AbortSignal }): Promise<ConvertSource> {
  const source = await fileSource(path);
  try {
    const { metadata } = await openSafetensors(source, options);
    const opened = await openFolder(oneFileFolder(source, metadata), options);
    const { name, tensors } = opened.file.store;
    const store: TensorStore = { name, tensors, close: () => source.close() };
    return { ...opened, file: { ...opened.file, store } };
  } catch (error) {
    await source.close();
    throw error;
  }
}

async function openFolder(folder: HubFiles, options: { signal?: AbortSignal }): Promise<ConvertSource> {
  const hub = await openHubFolder(folder, options);
  const { weightFiles, files } = hub;
  if (weightFiles === undefined) {
    throw new FormatError({ source: hub.name, field: 'model.safetensors', message: 'missing: no weights found' });
  }
  const store =
    weightFiles.kind === 'single'
      ? await openSafetensors(await files.open(weightFiles.name), options)
      : await openShardedSafetensors(weightFiles.indexJson, (shard) => files.open(shard), {
          name: weightFiles.indexName,
          ...options,
        });
  const openModule = async (name: string): Promise<TensorStore> => openSafetensors(await files.open(name), options);
  const own = isColbert(hub.config) ? colbertStore(store) : store;
  const withModules = await openDenseLayers(own, denseModules(hub.sentenceTransformers), openModule);
  const fields = Fields.ofJson(`${hub.name}/config.json`, hub.config.value);
  return {
    format: 'safetensors',
    hub,
    file: { format: 'safetensors', fields, store: withModules },
  };
}
