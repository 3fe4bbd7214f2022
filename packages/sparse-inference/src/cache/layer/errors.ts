/** Errors of calls to a layer of the neuron cache, and of its loads. */
import { ArgumentError, CapacityError } from '@winnow/tensor';
import { NeuronLoadError } from '../load-error.js';
import type { LoadFailure } from '../slot-loads.js';

/** @throws {ArgumentError} unless `[begin, end)` is a range of `ids` and these are items of the layer */
export function checkIds(ids: Int32Array, begin: number, end: number, layer: number, numItems: number): void {
  if (!(Number.isInteger(begin) && Number.isInteger(end) && begin >= 0 && end >= begin && end <= ids.length)) {
    const expected = `a range within [0, ${ids.length})`;
    throw new ArgumentError({ argument: 'ids', expected, actual: `[${begin}, ${end})` });
  }
  for (let index = begin; index < end; index++) {
    const item = ids[index];
    if (item >= 0 && item < numItems) continue;
    const expected = `0 to ${numItems - 1} in layer ${layer}`;
    throw new ArgumentError({ argument: `ids[${index}]`, expected, actual: String(item) });
  }
}

export function busyError(layer: number, expected: string): ArgumentError {
  return new ArgumentError({ argument: `layer ${layer}`, expected, actual: 'one that has not ended' });
}

export function tooManyError(fields: {
  readonly layer: number;
  readonly itemName: string;
  readonly needed: number;
  readonly available: number;
  readonly fitting: number;
}): CapacityError {
  const { layer, itemName, needed, available, fitting } = fields;
  const resource = `neuron cache: layer ${layer}: slots for ${itemName}s at a time`;
  return new CapacityError({ resource, needed, available, unit: 'slots', hint: `the first ${fitting} ids fit` });
}

export function loadError(
  layer: number,
  itemName: string,
  { source, byteOffset, piece, cause }: LoadFailure,
  failedItems: readonly number[],
): NeuronLoadError {
  const message = cause instanceof Error ? cause.message : String(cause);
  const items = failedItems.toSorted((a, b) => a - b);
  return new NeuronLoadError({ source, byteOffset, layer, piece, itemName, items, message }, { cause });
}
