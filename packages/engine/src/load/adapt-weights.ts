/** What is done to the weights of a model between its file and the memory: quantized, or adapted. */
import {
  addAdapters,
  quantizeWeights,
  type EmbedderDescription,
  type KeptWeight,
  type ModelFile,
  type ScaledLora,
} from '@winnow/models';
import type { DType } from '@winnow/tensor';
import type { LoraOptions } from './adapters.js';

export interface WeightOptions {
  /**
   * Store the matrices in this type, whatever the file has: `q8_0`, `q4_0`, `q4_K`, `f16`, ... They are encoded as they
   * are read, a few megabytes at a time. Norms, biases, routers and positions stay; the output matrix gets q6_K with types
   * below it. Matrices that cannot be stored so, or are quantized already, stay as they are and are named in `notices`.
   * Default: the types of the file.
   */
  readonly quantize?: DType;
  /** Low-rank adapters (LoRA). Default: none. */
  readonly lora?: LoraOptions;
}

/**
 * Changes the weights of a description by the options, before programs are built.
 * @param adapters those of the options, read
 * @returns notices
 * @throws {ArgumentError} for a type that weights cannot be stored in
 * @throws {FormatError} for an adapter that does not fit the model
 */
export async function adaptWeights(
  description: EmbedderDescription,
  { quantize, lora: { mode = 'runtime' } = {} }: WeightOptions,
  format: ModelFile['format'],
  adapters: readonly ScaledLora[],
): Promise<readonly string[]> {
  const { weights, config } = description;
  const add = (): string[] => (adapters.length === 0 ? [] : addAdapters(description, format, adapters, mode));
  const merged = mode === 'merge' ? add() : [];
  const kept = quantize === undefined ? [] : quantizeWeights(weights, { dtype: quantize, isTied: config.isTied });
  const added = mode === 'merge' ? [] : add();
  return [...merged, ...(quantize === undefined ? [] : keptNotices(kept, quantize)), ...added];
}

/** One notice for all that stay for the same reason. */
function keptNotices(kept: readonly KeptWeight[], dtype: DType): string[] {
  const byReason = new Map<string, string[]>();
  for (const { name, reason } of kept) {
    const names = byReason.get(reason);
    if (names === undefined) byReason.set(reason, [name]);
    else names.push(name);
  }
  return [...byReason].map(([reason, names]) => {
    const [first, ...others] = names;
    const more = others.length === 0 ? '' : ` and ${others.length} more`;
    return `not stored as ${dtype}: ${first}${more}: ${reason}`;
  });
}
