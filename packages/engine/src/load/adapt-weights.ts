/** Changes weights while they load: quantizes them, adds or merges adapters. */
import {
  addAdapters,
  quantizeWeights,
  type EmbedderDescription,
  type KeptWeight,
  type ModelFile,
  type QuantizeType,
  type ScaledLora,
} from '@winnow/models';
import type { LoraOptions } from './adapters.js';

export interface WeightOptions {
  /**
   * Dtype that the matrices are quantized to while they load: `q8_0`, `q4_0`, `q4_K`, `f16`, ..., or `q4_K_M`: q4_K with q6_K
   * for the embedding table, the output matrix and matrices of the first, last and some other layers. They are converted a
   * few megabytes at a time. Norms, biases, routers and position embeddings keep their dtype; below q6_K, the output
   * matrix gets q6_K. Matrices that do not support the dtype, or are already quantized, stay unchanged and are listed
   * in `notices`. Default: the dtypes of the file.
   */
  readonly quantize?: QuantizeType;
  /** Low-rank adapters (LoRA). Default: none. */
  readonly lora?: LoraOptions;
}

/**
 * Applies the weight options to a description before programs are built.
 * @param adapters the adapters of the options, already read
 * @returns notices
 * @throws {ArgumentError} for a dtype that weights cannot have
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
  const kept =
    quantize === undefined
      ? []
      : quantizeWeights(weights, { dtype: quantize, isTied: config.isTied, numLayers: config.numLayers });
  const added = mode === 'merge' ? [] : add();
  return [...merged, ...(quantize === undefined ? [] : keptNotices(kept, quantize)), ...added];
}

/** One notice for all weights that stay for the same reason. */
function keptNotices(kept: readonly KeptWeight[], dtype: QuantizeType): string[] {
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
