/** Opens LoRA adapters from the file system. */
import { stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { openGgufFile } from '@winnow/gguf/node';
import { localFolder } from '@winnow/hub/node';
import { IoError } from '@winnow/tensor';
import type { OpenAdapterPath } from '../load/adapters.js';
import { pathOf } from './open-path.node.js';

/** A folder, or a `.safetensors` file in it, is a PEFT adapter; any other file is GGUF. */
export const openAdapterPath: OpenAdapterPath = async (location) => {
  const path = pathOf(location);
  let isFolder: boolean;
  try {
    isFolder = (await stat(path)).isDirectory();
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code;
    const message = code === 'ENOENT' ? 'no such file or folder' : `cannot be opened (${String(code)})`;
    throw new IoError({ source: path, message }, { cause });
  }
  if (isFolder) return localFolder(path);
  return /\.safetensors$/i.test(path) ? localFolder(dirname(path)) : openGgufFile(path);
};
