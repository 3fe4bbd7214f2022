/** Finds the architecture of a model file. */
import { FormatError } from '@winnow/tensor';
import type { Architecture, ModelDescription, ModelFile } from './architecture.js';
import { describe } from './fields.js';
import { llama } from './llama.js';

/** All architectures. */
export const architectures: readonly Architecture[] = [llama];

/**
 * Reads a model's settings and finds its weights, without loading them.
 * @throws {FormatError} for an architecture that is not supported (the message lists those that are), and when the file
 *   does not hold what its architecture needs
 */
export async function describeModel(file: ModelFile): Promise<ModelDescription> {
  const isGguf = file.format === 'gguf';
  const field = isGguf ? 'general.architecture' : 'model_type';
  const name = file.fields.raw(field);
  const namesOf = (architecture: Architecture): readonly string[] =>
    isGguf ? architecture.ggufNames : architecture.hubNames;
  const architecture = architectures.find((candidate) => namesOf(candidate).includes(name as string));
  if (architecture === undefined) {
    throw new FormatError({
      source: file.fields.source,
      field,
      message: `architecture ${describe(name)} is not supported, expected one of ${architectures.flatMap(namesOf).join(', ')}`,
    });
  }
  return architecture.describe(file);
}
