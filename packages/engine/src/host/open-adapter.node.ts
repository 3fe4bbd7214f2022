/** Opens LoRA adapters from the file system. */
import { dirname } from 'node:path';
import { openGgufFile } from '@winnow/gguf/node';
import { localFolder } from '@winnow/hub/node';
import type { OpenAdapterPath } from '../load/adapters.js';
import { isFolder, pathOf } from './open-path.node.js';

/** A folder, or a `.safetensors` file in it, is a PEFT adapter; any other file is GGUF. */
export const openAdapterPath: OpenAdapterPath = async (location) => {
  const path = pathOf(location);
  if (await isFolder(path)) return localFolder(path);
  return /\.safetensors$/i.test(path) ? localFolder(dirname(path)) : openGgufFile(path);
};
