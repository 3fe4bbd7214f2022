/** What the host must know about kernels to plan records; extend this table when another kernel has such traits. */
import { numRopePairs, type Attributes } from '@winnow/ops';
import type { DType } from '@winnow/tensor';
import type { KernelOp } from './kernel-ops.generated.js';

/** How weights are repacked: groups of rows are interleaved, or the three rows of a neuron are reordered. */
export type RepackOrder = 'rows' | 'neurons';

/** Dtypes of the weights that `assembly/gemm/repack.ts` and `assembly/ffn/repack-neurons.ts` repack. */
export const repackedDTypes: Readonly<Record<RepackOrder, readonly DType[]>> = {
  rows: ['q8_0', 'q4_0', 'q4_K', 'q5_K', 'q6_K'],
  neurons: ['q8_0', 'q4_0'],
};

/** Bytes of an entry of rope's table: a cosine and a sine in f64. */
export const ropeEntryBytes = 16;

interface KernelTraits {
  /** The input that the kernel can read repacked, and in which order. */
  readonly repackable?: { readonly input: string; readonly order: RepackOrder };
  /** Dtypes of the weight for which the kernel runs on 8-bit activations. */
  readonly int8DTypes?: readonly DType[];
  /** Whether it does so only once the weight is repacked. */
  readonly int8NeedsRepacking?: boolean;
  /** Whether consecutive records of the op with the same x share the quantized activations in scratch. */
  readonly sharesActivations?: boolean;
  /** Whether every thread quantizes activations redundantly when there are few of them. */
  readonly quantizesRedundantly?: boolean;
  /** Whether waiting threads prefetch its repacked weights. */
  readonly isPrefetched?: boolean;
  /** Whether it reads so many weights that prefetched data would be evicted from the caches. */
  readonly streamsWeights?: boolean;
  /** A precomputed table, which records with the same attributes and inputs share; some inputs are optional. */
  readonly table?: {
    readonly inputs: readonly string[];
    readonly attributes: readonly string[];
    /** Bytes at the capacities of symbols, with the number of elements of each input. */
    readonly sizeBytes: (numElements: Readonly<Record<string, number>>, attributes: Attributes) => number;
  };
}

const kernelTraits: Partial<Record<KernelOp, KernelTraits>> = {
  matmul: {
    repackable: { input: 'weight', order: 'rows' },
    int8DTypes: repackedDTypes.rows,
    int8NeedsRepacking: true,
    sharesActivations: true,
    quantizesRedundantly: true,
    isPrefetched: true,
  },
  'expert-matmul': {
    repackable: { input: 'weight', order: 'rows' },
    int8DTypes: repackedDTypes.rows,
    int8NeedsRepacking: true,
    streamsWeights: true,
  },
  'embedding-lookup': { repackable: { input: 'table', order: 'rows' } },
  'sparse-feed-forward': {
    repackable: { input: 'weight', order: 'neurons' },
    int8DTypes: repackedDTypes.rows,
    streamsWeights: true,
  },
  'sparse-matmul': { int8DTypes: repackedDTypes.rows, sharesActivations: true, streamsWeights: true },
  // axpy kernels
  'sparse-combine': { int8DTypes: repackedDTypes.neurons, streamsWeights: true },
  rope: {
    table: {
      inputs: ['positions', 'frequencies', 'rows'],
      attributes: ['amplitude', 'numPairs'],
      sizeBytes: ({ positions, frequencies }, attributes) =>
        positions * numRopePairs(frequencies, attributes) * ropeEntryBytes,
    },
  },
};

const none: KernelTraits = {};

export function traitsOf(op: string): KernelTraits {
  return (kernelTraits as Readonly<Record<string, KernelTraits | undefined>>)[op] ?? none;
}
