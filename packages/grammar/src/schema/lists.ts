/** Array methods whose test is a computation in slices. */
import type { Sliced } from '@winnow/tensor';

type Test<Item> = (item: Item) => Sliced<boolean>;

export function* someOf<Item>(items: Iterable<Item>, test: Test<Item>): Sliced<boolean> {
  for (const item of items) if (yield* test(item)) return true;
  return false;
}

export function* everyOf<Item>(items: Iterable<Item>, test: Test<Item>): Sliced<boolean> {
  for (const item of items) if (!(yield* test(item))) return false;
  return true;
}

export function* filtered<Item>(items: Iterable<Item>, test: Test<Item>): Sliced<Item[]> {
  const kept: Item[] = [];
  for (const item of items) if (yield* test(item)) kept.push(item);
  return kept;
}
