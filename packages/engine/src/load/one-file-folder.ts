/** A Hugging Face folder in one safetensors file: the header's `__metadata__` carries the texts of the other files. */
import type { ByteSource } from '@winnow/bytes';
import { memoryFolder, type HubFiles } from '@winnow/hub';
import { openSafetensors } from '@winnow/safetensors';
import { FormatError } from '@winnow/tensor';

const weightsName = 'model.safetensors';

/**
 * The settings, the tokenizer and the chat template by their usual file names, and the file itself as the weights.
 * @param source stays open: the files of the folder read from it and do not close it
 * @throws {FormatError} for weights alone
 */
export async function oneFileFolder(source: ByteSource, options: { signal?: AbortSignal }): Promise<HubFiles> {
  const borrowed: ByteSource = {
    name: source.name,
    sizeBytes: source.sizeBytes,
    read: (byteOffset, target, readOptions) => source.read(byteOffset, target, readOptions),
    close: async () => undefined,
  };
  const { metadata } = await openSafetensors(borrowed, options);
  if (!metadata.has('config.json')) {
    const message = 'missing in the header: expected the folder of the model, or a file whose header describes it';
    throw new FormatError({ source: source.name, field: 'config.json', message });
  }
  const texts = [...metadata].filter(([name]) => /\.(json|jinja)$/.test(name));
  const folder = memoryFolder(Object.fromEntries(texts), source.name);
  return {
    name: source.name,
    list: async () => [...(await folder.list()), weightsName].sort(),
    has: async (name) => name === weightsName || folder.has(name),
    open: async (name) => (name === weightsName ? borrowed : folder.open(name)),
  };
}
