/** A Hugging Face folder in one safetensors file: the header's `__metadata__` carries the texts of the other files. */
import type { ByteSource } from '@winnow/bytes';
import { FormatError } from '@winnow/tensor';
import { memoryFolder, type HubFiles } from '../files.js';

const weightsName = 'model.safetensors';

/**
 * The settings, the tokenizer and the chat template by their usual file names, and the file itself as the weights.
 * @param source stays open: the files of the folder read from it and do not close it
 * @param metadata of the header
 * @throws {FormatError} for weights alone
 */
export function oneFileFolder(source: ByteSource, metadata: ReadonlyMap<string, string>): HubFiles {
  if (!metadata.has('config.json')) {
    const message = 'missing in the header: expected the folder of the model, or a file whose header describes it';
    throw new FormatError({ source: source.name, field: 'config.json', message });
  }
  const texts = [...metadata].filter(([name]) => /\.(json|jinja)$/.test(name));
  const folder = memoryFolder(Object.fromEntries(texts), source.name);
  const borrowed: ByteSource = {
    name: source.name,
    sizeBytes: source.sizeBytes,
    read: (byteOffset, target, readOptions) => source.read(byteOffset, target, readOptions),
    close: async () => undefined,
  };
  return {
    name: source.name,
    list: async () => [...(await folder.list()), weightsName].sort(),
    has: async (name) => name === weightsName || folder.has(name),
    open: async (name) => (name === weightsName ? borrowed : folder.open(name)),
  };
}
