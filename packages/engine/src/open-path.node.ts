/** Opens models of the file system. */
import { stat } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { openGgufFile } from '@winnow/gguf/node';
import { localFolder } from '@winnow/hub/node';
import { IoError } from '@winnow/tensor';
import { closeOnError, type OpenPath } from './open-location.js';
import { openHubModel } from './opened-model.js';

/** A folder is a Hugging Face model, a file is GGUF. */
export const openPath: OpenPath = async (location, { signal }) => {
  const path = location instanceof URL || /^file:/i.test(location) ? fileURLToPath(location) : location;
  const withSignal = signal === undefined ? {} : { signal };
  let isFolder: boolean;
  try {
    isFolder = (await stat(path)).isDirectory();
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code;
    const message = code === 'ENOENT' ? 'no such file or folder' : `cannot be opened (${code})`;
    throw new IoError({ source: path, message }, { cause });
  }
  if (isFolder) return openHubModel(localFolder(path), withSignal);
  return closeOnError(await openGgufFile(path, withSignal));
};
