/** Which attention policies work across tiers, and what they need of them. */
import {
  appendSideData,
  type AttentionRequirements,
  type LayerPolicy,
  type PageTopKPolicy,
} from '@winnow/sparse-attention';
import type { AttentionLowering } from '@winnow/ops';
import { ArgumentError } from '@winnow/tensor';

/** The attention of a model, as far as offloading depends on it. */
export interface OffloadedAttention {
  /** The text form of the policy; undefined when all layers are dense. */
  readonly text: string | undefined;
  readonly requirements: AttentionRequirements;
  /** By layer. */
  readonly layers: readonly LayerPolicy[];
}

/** Positions that are read because of where they are: the first ones, and the last ones before a step. */
export interface KeptPositions {
  readonly sinks: number;
  readonly window: number;
}

export interface TierAttention {
  /** Only these are ever read, and have to be in the pool: nothing is attended to outside it. */
  readonly reads: KeptPositions | undefined;
  /** Layers in which generated tokens read only the pages that they choose. The others read everything. */
  readonly choosing: ReadonlyMap<number, PageTopKPolicy>;
  /** Appends what policies keep beside keys and values. */
  readonly appendSideData: (...site: Parameters<AttentionLowering>) => void;
}

/** @throws {ArgumentError} for policies that read single tokens from everywhere */
export function tierAttention(
  { text, layers, requirements }: OffloadedAttention,
  isTraced: boolean,
  isAttending: (layer: number) => boolean,
): TierAttention {
  const refuse = (actual: string): never => {
    const expected = 'attention that is not traced: dense, streaming in all layers, or page-topk for generated tokens';
    throw new ArgumentError({ argument: 'kv', expected, actual });
  };
  if (isTraced) refuse('trace.attention');
  const choosing = new Map<number, PageTopKPolicy>();
  const { reads } = requirements;
  for (const [layer, { prefill, decode }] of layers.entries()) {
    if (reads !== undefined || !isAttending(layer)) continue;
    if (prefill.kind !== 'dense') refuse(text ?? prefill.kind);
    if (decode.kind === 'page-topk') choosing.set(layer, decode);
    else if (decode.kind !== 'dense') refuse(text ?? decode.kind);
  }
  return {
    reads,
    choosing,
    appendSideData(b, site): void {
      const { prefill, decode } = layers[site.layer] as LayerPolicy;
      appendSideData(b, site, [prefill, decode]);
    },
  };
}

/** Bytes of the boxes of a block, over all layers that keep them. */
export function boxBlockBytes(
  { layers }: OffloadedAttention,
  attending: readonly number[],
  sizes: { readonly blockSize: number; readonly numKvHeads: number; readonly headDim: number },
): number {
  const { blockSize, numKvHeads, headDim } = sizes;
  let bytes = 0;
  for (const layer of attending) {
    const decode = layers[layer]?.decode;
    if (decode?.kind === 'page-topk') bytes += (blockSize / decode.pageSize) * numKvHeads * (2 * headDim + 2) * 4;
  }
  return bytes;
}
