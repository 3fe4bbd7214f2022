/**
 * The locations of a buffer. It has a home in one memory; programs with ops in other memories that use it get copies
 * there. A place is current if it holds the latest data; copies are made lazily.
 */
import type { BufferHandle } from '@winnow/ops';
import { invariant } from '@winnow/tensor';
import type { MemoryShard } from './memory-shard.js';
import type { RepackedTensor } from './repacking.js';

export interface BufferPlace {
  readonly memory: MemoryShard;
  readonly address: number;
  isCurrent: boolean;
  /** Weights in it whose rows are currently interleaved. */
  repacked: readonly RepackedTensor[];
}

export interface WasmBuffer extends BufferHandle {
  readonly owner: object;
  readonly label: string;
  /** The home comes first; empty when the buffer was freed. */
  places: readonly BufferPlace[];
}

export function placeIn({ places }: WasmBuffer, memory: MemoryShard): BufferPlace | undefined {
  return places.find((place) => place.memory === memory);
}

/** Adds a place that is not current yet. @throws {CapacityError} */
export function addPlace(buffer: WasmBuffer, memory: MemoryShard): BufferPlace {
  const label = `a copy of ${buffer.label} for ops in another memory`;
  const address = memory.heap.allocate(buffer.sizeBytes, label);
  const place: BufferPlace = { memory, address, isCurrent: false, repacked: [] };
  buffer.places = [...buffer.places, place];
  return place;
}

/** Copies the latest data to a place, interleaved as in its source. Requires that no job runs. */
export function makeCurrent({ places, sizeBytes }: WasmBuffer, place: BufferPlace): void {
  if (place.isCurrent) return;
  const source = places.find(({ isCurrent }) => isCurrent);
  invariant(source !== undefined, 'a place of a buffer is current');
  place.memory.heap.bytes(place.address, sizeBytes).set(source.memory.heap.bytes(source.address, sizeBytes));
  place.repacked = source.repacked;
  place.isCurrent = true;
}

/** Marks a place as the only current one. */
export function setWritten({ places }: WasmBuffer, place: BufferPlace): void {
  for (const other of places) other.isCurrent = other === place;
}
