/** Which layers of a hybrid model are attention layers and which are recurrent, in both formats. */
import { Fields, isList } from '../file/fields.js';
import type { ModelFile } from '../program/architecture.js';

/** A setting as a list; `undefined` for a single value or none. */
export function listOf(fields: Fields, name: string): unknown[] | undefined {
  const value = fields.raw(name);
  return isList(value) ? Array.from(value) : undefined;
}

/**
 * Reads the number of KV heads of each layer, 0 for a recurrent layer.
 * @returns the file with the number of KV heads of its attention layers, and which layers are recurrent
 */
export function kvHeadsByLayer(
  file: ModelFile,
  architecture: string,
): { readonly uniform: ModelFile; readonly layersWithout: readonly boolean[] | undefined } {
  const { fields } = file;
  const key = `${architecture}.attention.head_count_kv`;
  const counts = listOf(fields, key);
  if (counts === undefined) return { uniform: file, layersWithout: undefined };
  const numLayers = fields.count(`${architecture}.block_count`);
  if (counts.length !== numLayers) throw fields.refusal(key, `an array of ${numLayers}`, counts);
  const attending = counts.filter((count) => count !== 0);
  const replaced = attending.length === 0 ? undefined : attending;
  const uniform = new Fields(fields.source, (name) => (name === key ? replaced : fields.raw(name)));
  return { uniform: { ...file, fields: uniform }, layersWithout: counts.map((count) => count === 0) };
}
