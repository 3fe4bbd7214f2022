/** Which attention policies work with KV offload, and what they require. */
import {
  appendSideData,
  type AttentionRequirements,
  type LayerPolicy,
  type PageTopKPolicy,
} from '@winnow/sparse-attention';
import type { AttentionLowering } from '@winnow/ops';
import { ArgumentError } from '@winnow/tensor';

/** The parts of a model's attention that offloading depends on. */
export interface OffloadedAttention {
  /** The text form of the policy; undefined when all layers are dense. */
  readonly text: string | undefined;
  readonly requirements: AttentionRequirements;
  /** By layer. */
  readonly layers: readonly LayerPolicy[];
}

/** Positions that are always read: the first ones, and the last ones before a step. */
export interface KeptPositions {
  readonly sinks: number;
  readonly window: number;
}

export interface TierAttention {
  /** If defined, only these positions are read; they must be in the pool, and nothing outside it is attended to. */
  readonly reads: KeptPositions | undefined;
  /** Layers in which generated tokens read only selected pages. Other layers read everything. */
  readonly choosing: ReadonlyMap<number, PageTopKPolicy>;
  /** Appends the side data of policies. */
  readonly appendSideData: (...node: Parameters<AttentionLowering>) => void;
}

/** @throws {ArgumentError} for policies that read single tokens from anywhere */
export function tierAttention(
  { text, layers, requirements }: OffloadedAttention,
  isTraced: boolean,
  isAttending: (layer: number) => boolean,
): TierAttention {
  if (isTraced) {
    throw new ArgumentError({
      argument: 'trace.attention',
      expected: 'none while KV pages are offloaded',
      actual: 'one',
    });
  }
  const refuse = (actual: string): never => {
    const expected = 'dense, streaming in all layers, or page-topk for generated tokens, while KV pages are offloaded';
    throw new ArgumentError({ argument: 'attention', expected, actual });
  };
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
    appendSideData(b, node): void {
      const { prefill, decode } = layers[node.layer] as LayerPolicy;
      appendSideData(b, node, [prefill, decode]);
    },
  };
}

/** Bytes of the key boxes of a block, over all layers that have them; layers that attend to the same keys share theirs. */
export function boxBlockBytes(
  { layers }: OffloadedAttention,
  attending: readonly number[],
  blockSize: number,
  keysOf: (layer: number) => { readonly kvLayer: number; readonly numKvHeads: number; readonly headDim: number },
): number {
  const bytes = new Map<string, number>();
  for (const layer of attending) {
    const decode = layers[layer]?.decode;
    if (decode?.kind !== 'page-topk') continue;
    const { kvLayer, numKvHeads, headDim } = keysOf(layer);
    const boxes = (blockSize / decode.pageSize) * numKvHeads;
    bytes.set(`${kvLayer} ${decode.pageSize}`, boxes * (2 * headDim + 2) * 4);
  }
  return [...bytes.values()].reduce((sum, each) => sum + each, 0);
}
