/** What is done to the weights of a model between its file and the memory: quantised, or adapted. */
import { quantiseWeights, type EmbedderDescription, type KeptWeight } from '@winnow/models';
import type { DType } from '@winnow/tensor';

export interface WeightOptions {
  /**
   * Store the matrices in this type, whatever the file has: `q8_0`, `q4_0`, `q4_K`, `f16`, ... They are encoded as they
   * are read, a few megabytes at a time. Norms, biases, routers and positions stay; the output matrix gets q6_K with types
   * below it. Matrices that cannot be stored so, or are quantised already, stay as they are and are named in `notices`.
   * Default: the types of the file.
   */
  readonly quantize?: DType;
}

/**
 * Changes the weights of a description by the options, before programs are built.
 * @returns notices
 * @throws {ArgumentError} for a type that weights cannot be stored in
 */
export async function adaptWeights(
  { weights, config }: EmbedderDescription,
  { quantize }: WeightOptions,
): Promise<readonly string[]> {
  if (quantize === undefined) return [];
  return keptNotices(quantiseWeights(weights, { dtype: quantize, isTied: config.isTied }), quantize);
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
