import { expect, test } from 'vitest';
import { LruMap } from './lru-map.js';

test('the least recently used entry leaves first; get and set are uses, has is not', () => {
  const map = new LruMap<string, number>();
  for (const [value, key] of ['a', 'b', 'c', 'd'].entries()) map.set(key, value);
  expect(map.get('a')).toBe(0);
  expect(map.has('b')).toBe(true);
  map.set('c', 7);
  expect([...map.keys()]).toEqual(['b', 'd', 'a', 'c']);
  expect([map.evict(3), map.evict(3), map.size]).toEqual([1, undefined, 3]);
  expect([map.remove('a'), map.remove('a'), map.get('a')]).toEqual([0, undefined, undefined]);
  expect([...map.values()]).toEqual([3, 7]);
  map.clear();
  expect([map.size, map.evict(0)]).toEqual([0, undefined]);
});
