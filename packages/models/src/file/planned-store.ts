/** A store without a file, which records how a format stores the weights of a model; for writers. */
import type { StoredTensor } from '@winnow/bytes';
import { numElements, tensorBytes, type Shape } from '@winnow/tensor';
import type { RequestedStore, Weight, WeightRequest } from './weights.js';

export interface PlannedStore extends RequestedStore {
  /** Requests that were satisfied, in order. */
  readonly requests: readonly WeightRequest[];
}

/**
 * Describing a model with this store requests every tensor that the format has for these weights; `requests` records
 * their names, fusion and storage.
 * @param weights weights of the model, by their names in programs
 * @param shown tensors that the architecture looks for to detect how the file stores the others
 * @param tables tensors whose values the description reads
 */
export function plannedStore(
  name: string,
  weights: ReadonlyMap<string, Weight>,
  shown: ReadonlyMap<string, Shape>,
  tables: readonly StoredTensor[] = [],
): PlannedStore {
  const requests: WeightRequest[] = [];
  const placeholder = (tensorName: string, shape: Shape): StoredTensor => ({
    name: tensorName,
    dtype: 'f32',
    shape,
    sizeBytes: tensorBytes('f32', shape),
    read: async (target) => void target.fill(0),
  });
  return {
    name,
    requests,
    tensors: new Map(
      [...[...shown].map(([tensorName, shape]) => placeholder(tensorName, shape)), ...tables].map((tensor) => [
        tensor.name,
        tensor,
      ]),
    ),
    find(request) {
      const weight = weights.get(request.name);
      if (weight === undefined || numElements(weight.shape) !== numElements(request.shape)) return undefined;
      requests.push(request);
      return placeholder(request.storedName, request.shape);
    },
    close: async () => undefined,
  };
}
