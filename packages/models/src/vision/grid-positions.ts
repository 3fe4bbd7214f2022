/**
 * Learned positions of a square grid for images of any size, as in Qwen3-VL: bilinear interpolation between the four nearest grid
 * points, with aligned corners (`get_vision_interpolation_indices_and_weights` of transformers' vision_utils.py).
 */
import type { ProgramTensor } from '@winnow/ops';
import { add } from '../blocks/decoder-blocks.js';
import type { RowGrid } from '../program/architecture.js';
import type { DecoderStep } from '../program/decoder-program.js';

/** Name of the buffer with the interpolation weights of each token, `[T, 4]`. */
export const placeWeightsName = 'slots.v.placeWeights';

const numPlaces = 4;

const placesSlot = (index: number): string => `gridPlaces${index}`;

/** Adds the position embeddings to the patches `[T, hiddenDim]`. */
export function addGridPositions(step: DecoderStep, patches: ProgramTensor): ProgramTensor {
  const { b, weight, positions } = step;
  const table = b.external(placeWeightsName, 'kv', 'f32', [b.capacity('T'), numPlaces]);
  const weights = b.activation('embedding-lookup', { table, tokens: positions });
  let sum = patches;
  for (let index = 0; index < numPlaces; index++) {
    const tokens = b.scalar(placesSlot(index), ['T']);
    const rows = b.activation('embedding-lookup', { table: weight('position_embd.weight'), tokens });
    const scales = b.activation('slice-columns', { x: weights }, { begin: index, length: 1 });
    sum = add(step, sum, b.activation('scale-rows', { x: rows, scales }));
  }
  return sum;
}

/** Writes the grid points of a token and their weights. @param place row and column of its patch @param patches size of the image */
export function fillGridPositions(
  slot: (name: string) => Int32Array,
  weights: Float32Array,
  token: number,
  place: readonly [row: number, column: number],
  { rows, columns }: RowGrid,
  side: number,
): void {
  const [y, x] = [nearest(place[0], rows, side), nearest(place[1], columns, side)];
  for (let index = 0; index < numPlaces; index++) {
    const [v, u] = [index >> 1, index & 1];
    slot(placesSlot(index))[token] = (y.places[v] as number) * side + (x.places[u] as number);
    weights[token * numPlaces + index] = (y.weights[v] as number) * (x.weights[u] as number);
  }
}

interface Nearest {
  readonly places: readonly number[];
  readonly weights: readonly number[];
}

function nearest(index: number, size: number, side: number): Nearest {
  const at = (index * (side - 1)) / Math.max(1, size - 1);
  const first = Math.floor(at);
  return { places: [first, Math.min(first + 1, side - 1)], weights: [1 - (at - first), at - first] };
}
