/** Finds the architecture of a model file. */
import { FormatError } from '@winnow/tensor';
import type { Architecture, ModelDescription, ModelFile } from './architecture.js';
import { describe } from './fields.js';
import { gemma } from './gemma.js';
import { gemma2 } from './gemma2.js';
import { gemma3 } from './gemma3.js';
import { gpt2 } from './gpt2.js';
import { lfm2 } from './lfm2.js';
import { lfm2moe } from './lfm2moe.js';
import { llama } from './llama.js';
import { mixtral } from './mixtral.js';
import { olmoe } from './olmoe.js';
import { phi2 } from './phi2.js';
import { phi3 } from './phi3.js';
import { qwen2 } from './qwen2.js';
import { qwen2moe } from './qwen2moe.js';
import { qwen3 } from './qwen3.js';
import { qwen35 } from './qwen35.js';
import { qwen35moe } from './qwen35moe.js';
import { qwen3moe } from './qwen3moe.js';
import { stablelm } from './stablelm.js';
import { starcoder2 } from './starcoder2.js';
import { withOuterName } from './text-part.js';

/** All architectures. */
export const architectures: readonly Architecture[] = [
  llama,
  qwen2,
  qwen3,
  phi2,
  phi3,
  gemma,
  gemma2,
  gemma3,
  gpt2,
  starcoder2,
  stablelm,
  mixtral,
  qwen2moe,
  qwen3moe,
  olmoe,
  lfm2,
  lfm2moe,
  qwen35,
  qwen35moe,
];

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
  return architecture.describe(withOuterName(file));
}
