/** The side data that policies keep for the keys and values of a layer, and the ops that maintain it. */
import type { KvView, LayerAttention, ProgramBuilder, ProgramTensor } from '@winnow/ops';
import { ArgumentError, type DType } from '@winnow/tensor';
import type { AttentionPolicy } from '../policy/kinds.js';

/** The part of a layer's attention that side data depends on. */
export interface LayerCache extends Pick<LayerAttention, 'layer' | 'kvLayer' | 'slots'> {
  readonly kv: Pick<KvView, 'keys' | 'values'>;
}

/** Means of the blocks of a layer. */
export interface MeanTensors {
  readonly meanCounts: ProgramTensor;
  readonly keyMeans: ProgramTensor;
  readonly valueMeans: ProgramTensor;
}

/** Boxes of the pages of a layer. */
export interface BoxTensors {
  readonly boxCounts: ProgramTensor;
  readonly keyMin: ProgramTensor;
  readonly keyMax: ProgramTensor;
  readonly valueNorms: ProgramTensor;
}

/** Tokens per landmark, if the policy has landmarks. */
export function meanSizeOf(policy: AttentionPolicy): number | undefined {
  return policy.kind === 'subquadratic' && policy.landmarks !== 'off' ? policy.blockSize : undefined;
}

/** Tokens per page, if the policy has pages. */
export function pageSizeOf(policy: AttentionPolicy): number | undefined {
  return policy.kind === 'page-topk' || policy.kind === 'verified-topk' ? policy.pageSize : undefined;
}

/** @throws {ArgumentError} unless a cache block consists of whole parts */
export function partsOf(blockSize: number, partSize: number, what: string): number {
  if (partSize >= 1 && blockSize % partSize === 0) return blockSize / partSize;
  throw new ArgumentError({
    argument: `attention: ${what}`,
    expected: `a divisor of the ${blockSize} tokens of a cache block`,
    actual: String(partSize),
  });
}

function sizes({ kv }: LayerCache): { C: number; K: number; S: number; H: number; D: number } {
  const [C, K, S, H] = kv.keys.shape.map(Number) as [number, number, number, number];
  return { C, K, S, H, D: Number(kv.values.shape[3]) };
}

/** Layers that attend to the same keys share their side data. */
function nameOf({ layer, kvLayer = layer }: LayerCache, what: string): string {
  return `kv.${kvLayer}.${what}`;
}

/** The means of blocks of `partSize` tokens: buffers `kv.<layer>.keyMeans<partSize>` and so on. */
export function meansOf(b: ProgramBuilder, cache: LayerCache, partSize: number): MeanTensors {
  const { C, K, S, H, D } = sizes(cache);
  const G = partsOf(S, partSize, 'block');
  const name = (what: string): string => nameOf(cache, `${what}${partSize}`);
  return {
    meanCounts: b.external(name('meanCounts'), 'kv', 'i32', [C, G, K]),
    keyMeans: b.external(name('keyMeans'), 'kv', 'f32', [C, G, K, H]),
    valueMeans: b.external(name('valueMeans'), 'kv', 'f32', [C, G, K, D]),
  };
}

/** Names of the buffers of boxes. @param layer the layer whose keys they bound */
export function boxBufferNames(layer: number, pageSize: number): Readonly<Record<keyof BoxTensors, string>> {
  const name = (what: string): string => `kv.${layer}.${what}${pageSize}`;
  return {
    boxCounts: name('boxCounts'),
    keyMin: name('keyMin'),
    keyMax: name('keyMax'),
    valueNorms: name('valueNorms'),
  };
}

/** The boxes of pages of `pageSize` tokens. */
export function boxesOf(b: ProgramBuilder, cache: LayerCache, pageSize: number): BoxTensors {
  const { C, K, S, H } = sizes(cache);
  const G = partsOf(S, pageSize, 'page');
  const names = boxBufferNames(cache.kvLayer ?? cache.layer, pageSize);
  return {
    boxCounts: b.external(names.boxCounts, 'kv', 'i32', [C, G, K]),
    keyMin: b.external(names.keyMin, 'kv', 'f32', [C, G, K, H]),
    keyMax: b.external(names.keyMax, 'kv', 'f32', [C, G, K, H]),
    valueNorms: b.external(names.valueNorms, 'kv', 'f32', [C, G, K]),
  };
}

/** The transposed keys, in the dtype of the keys; in f16 if that is a block format. */
export function columnsOf(b: ProgramBuilder, cache: LayerCache): ProgramTensor {
  const { C, K, S, H } = sizes(cache);
  const { dtype } = cache.kv.keys;
  const columnDType: DType = dtype === 'f32' || dtype === 'bf16' ? dtype : 'f16';
  return b.external(nameOf(cache, 'keyColumns'), 'kv', columnDType, [C, K, H, S]);
}

/**
 * The block size of the means that SparQ averages: that of another policy of the layer, or whole cache blocks.
 */
export function sparqMeanSize(cache: LayerCache, policies: readonly AttentionPolicy[]): number {
  for (const policy of policies) {
    const size = meanSizeOf(policy);
    if (size !== undefined) return size;
  }
  return Number(cache.kv.keys.shape[2]);
}

/** The side data that the records of a program append already, by the names of buffers. */
const appendedIn = new WeakMap<ProgramBuilder, Set<string>>();

/** Whether the side data of a buffer is still to be appended in this program. */
function isNew(b: ProgramBuilder, { name }: ProgramTensor): boolean {
  const names = appendedIn.get(b) ?? new Set<string>();
  if (names.has(name)) return false;
  appendedIn.set(b, names.add(name));
  return true;
}

/**
 * Appends the side data of the step's tokens for all policies of a layer, whichever of them attends; once per program for
 * layers that attend to the same keys.
 */
export function appendSideData(b: ProgramBuilder, cache: LayerCache, policies: readonly AttentionPolicy[]): void {
  const { slots } = cache;
  const { keys, values } = cache.kv;
  const meanSizes = new Set(policies.flatMap((policy) => meanSizeOf(policy) ?? []));
  if (policies.some((policy) => policy.kind === 'sparq' && policy.meanValue)) {
    meanSizes.add(sparqMeanSize(cache, policies));
  }
  for (const size of meanSizes) {
    const { meanCounts, keyMeans, valueMeans } = meansOf(b, cache, size);
    if (!isNew(b, meanCounts)) continue;
    b.append('block-mean-append', { slots, keys, values }, {}, { counts: meanCounts, keyMeans, valueMeans });
  }
  for (const size of new Set(policies.flatMap((policy) => pageSizeOf(policy) ?? []))) {
    const { boxCounts, keyMin, keyMax, valueNorms } = boxesOf(b, cache, size);
    if (!isNew(b, boxCounts)) continue;
    b.append('block-box-append', { slots, keys, values }, {}, { counts: boxCounts, keyMin, keyMax, valueNorms });
  }
  if (policies.some((policy) => policy.kind === 'sparq' && policy.keyLayout === 'both')) {
    const columns = columnsOf(b, cache);
    if (isNew(b, columns)) b.append('key-columns-append', { slots, keys }, {}, { columns });
  }
}
