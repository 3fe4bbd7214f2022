/** Finds the files of a folder that contain the weights. */
import type { HubFiles } from './files.js';
import { readTextFile } from './json-object.js';
import { MAX_INDEX_BYTES } from './limits.js';
import { isTokenLayer } from './select-files.js';

/** One safetensors file, or several with an index that maps tensors to files. */
export type WeightFiles =
  | { readonly kind: 'single'; readonly name: string }
  | { readonly kind: 'sharded'; readonly indexName: string; readonly indexJson: string };

const singleName = 'model.safetensors';
const indexName = 'model.safetensors.index.json';

/**
 * Looks for `model.safetensors`, then for its index, then for a single safetensors file of any name. `undefined` when
 * there is none, or when there are several without an index.
 */
export async function findWeightFiles(
  files: HubFiles,
  options: { signal?: AbortSignal } = {},
): Promise<WeightFiles | undefined> {
  if (await files.has(singleName)) return { kind: 'single', name: singleName };
  const indexJson = await readTextFile(files, indexName, MAX_INDEX_BYTES, options);
  if (indexJson !== undefined) return { kind: 'sharded', indexName, indexJson };
  const [name, ...others] = (await files.list()).filter(
    (file) => /^[^/]+\.safetensors$/.test(file) && !isTokenLayer(file),
  );
  return name === undefined || others.length > 0 ? undefined : { kind: 'single', name };
}
