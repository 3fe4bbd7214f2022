/** Opens models from the file system. */
import { readdir, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { fileSource } from '@winnow/bytes/node';
import { openGgufFile } from '@winnow/gguf/node';
import { mmprojBeside, type HubFiles } from '@winnow/hub';
import { localFolder } from '@winnow/hub/node';
import { ArgumentError, FormatError, IoError } from '@winnow/tensor';
import type { ModelLocation, OpenOptions } from '../load/location.js';
import { openGgufOrClose } from '../load/open-location.js';
import { formatOfName, openHubModel, type OpenedModel } from '../load/opened-model.js';

/** A folder is a Hugging Face model; a file has the format of its name, by default GGUF. */
export async function openPath(location: string | URL, { signal }: OpenOptions): Promise<OpenedModel> {
  const path = pathOf(location);
  const withSignal = signal === undefined ? {} : { signal };
  if (await isFolder(path)) return openHubModel(await modelFolder(path), withSignal);
  if (/\.onnx$/i.test(path)) {
    const { folder, onnxFile } = await onnxPlace(path);
    return openHubModel(folder, { ...withSignal, onnxFile });
  }
  const format = formatOfName(path);
  if (format !== undefined) return format.open(await fileSource(path), withSignal);
  return openGgufOrClose(await openGgufFile(path, withSignal));
}

/** @throws {FormatError} for a folder that does not hold a model, which may have too many files to list */
async function modelFolder(path: string): Promise<HubFiles> {
  const folder = localFolder(path);
  if (await folder.has('config.json')) return folder;
  throw new FormatError({ source: path, field: 'config.json', message: 'missing: expected the folder of a model' });
}

/** The settings and the tokenizer lie beside the file, or beside its folder `onnx`. */
async function onnxPlace(path: string): Promise<{ readonly folder: HubFiles; readonly onnxFile: string }> {
  const folder = dirname(path);
  const isInside = basename(folder) === 'onnx' && !(await localFolder(folder).has('config.json'));
  const onnxFile = isInside ? `onnx/${basename(path)}` : basename(path);
  return { folder: localFolder(isInside ? dirname(folder) : folder), onnxFile };
}

/** The file `mmproj*.gguf` beside that of a GGUF model. */
export async function findMmproj(location: ModelLocation): Promise<string | undefined> {
  if (typeof location !== 'string' && !(location instanceof URL)) return undefined;
  if (/^https?:/i.test(String(location))) return undefined;
  const path = pathOf(location);
  if (!/\.gguf$/i.test(path)) return undefined;
  const best = mmprojBeside(basename(path), await readdir(dirname(path)));
  return best === undefined ? undefined : join(dirname(path), best);
}

/** @throws {ArgumentError} for URLs other than `file:` */
export function pathOf(location: string | URL): string {
  if (typeof location === 'string' && !/^file:/i.test(location)) return location;
  try {
    return fileURLToPath(location);
  } catch {
    const expected = 'a path, or a file: or http(s): URL';
    throw new ArgumentError({ argument: 'location', expected, actual: String(location) });
  }
}

/** @throws {IoError} when there is neither a file nor a folder */
export async function isFolder(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isDirectory();
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code;
    const message = code === 'ENOENT' ? 'no such file or folder' : `cannot be opened (${String(code)})`;
    throw new IoError({ source: path, message }, { cause });
  }
}
