/** Keys and values by position, where logical slot `j` of a sequence holds position `j`. */
import { contextOfSequence, keyOf, positionAt, slotIndex, valueOf } from './kv-cache-view';
import { dim } from '../runtime/record';

/** Brings key and value of a position to row `row` and notes in `flags` whether they are there; zeros where not. */
export function bringPosition(
  position: i32,
  row: i32,
  sequence: i32,
  kvHead: i32,
  keys: usize,
  values: usize,
  flags: usize,
): void {
  const keyBytes = (<usize>dim(0, 2)) << 2;
  const valueBytes = (<usize>dim(4, 3)) << 2;
  let isThere = position < contextOfSequence(sequence);
  const index = isThere ? slotIndex(sequence, position) : 0;
  if (isThere) isThere = positionAt(index) === position;
  store<i32>(flags + ((<usize>row) << 2), isThere ? 1 : 0);
  const keyTo = keys + <usize>row * keyBytes;
  const valueTo = values + <usize>row * valueBytes;
  if (!isThere) {
    memory.fill(keyTo, 0, keyBytes);
    memory.fill(valueTo, 0, valueBytes);
    return;
  }
  const key = keyOf(index, kvHead, keyTo);
  if (key !== keyTo) memory.copy(keyTo, key, keyBytes);
  const value = valueOf(index, kvHead, valueTo);
  if (value !== valueTo) memory.copy(valueTo, value, valueBytes);
}
