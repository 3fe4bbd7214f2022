/** Bytes of keys, values and selection metadata that one query of one head reads from an f32 cache. */
import { sparqTransfers, type AttentionPolicy } from '@winnow/sparse-attention';

export interface TrafficOptions {
  /** Mean number of keys that dense attention would visit. */
  readonly denseKeys: number;
  /** Mean number of visited keys and landmarks. */
  readonly visited: number;
  readonly headDim: number;
}

const bytesPerElement = 4;

/**
 * Ignores reads shared between the queries of a chunk or a group. Includes selection: columns of keys (`sparq`),
 * bounding boxes of pages (`page-topk`, `verified-topk`), all keys (`oracle-topk`).
 */
export function bytesRead(policy: AttentionPolicy, { denseKeys, visited, headDim }: TrafficOptions): number {
  const rows = 2 * visited * headDim;
  switch (policy.kind) {
    case 'sparq':
      return sparqTransfers({ ...policy, topK: Math.round(visited) }, denseKeys, headDim).formula * bytesPerElement;
    case 'page-topk':
    case 'verified-topk':
      return (rows + 2 * Math.ceil(denseKeys / policy.pageSize) * headDim) * bytesPerElement;
    case 'oracle-topk':
      return (denseKeys + visited) * headDim * bytesPerElement;
    default:
      return rows * bytesPerElement;
  }
}
