import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { IdList } from './id-list.js';
import { PairTable } from './pair-table.js';
import { Trie } from './trie.js';

describe('PairTable', () => {
  it('behaves like a map with composed keys', () => {
    const key = fc.nat({ max: 60 });
    fc.assert(
      fc.property(fc.array(fc.tuple(key, key, fc.nat()), { maxLength: 400 }), (entries) => {
        const table = new PairTable();
        const map = new Map<string, number>();
        for (const [first, second, value] of entries) {
          if (map.has(`${first} ${second}`)) continue;
          map.set(`${first} ${second}`, value);
          table.add(first, second, value, value ^ 1);
        }
        expect(table.size).toBe(map.size);
        for (let first = 0; first <= 60; first++) {
          for (let second = 0; second <= 60; second++) {
            const at = table.find(first, second);
            expect(at < 0 ? undefined : table.value(at)).toBe(map.get(`${first} ${second}`));
            if (at >= 0) expect(table.extra(at)).toBe(table.value(at) ^ 1);
          }
        }
      }),
      { numRuns: 20 },
    );
  });
});

describe('Trie', () => {
  it('finds the longest entry at a position', () => {
    const word = fc.string({ unit: fc.constantFrom('a', 'b', '\u{1f600}'), minLength: 1, maxLength: 5 });
    fc.assert(
      fc.property(fc.array(word, { maxLength: 30 }), fc.array(word), (words, parts) => {
        const trie = new Trie();
        words.forEach((entry, index) => trie.add(entry, index));
        const text = parts.join('');
        for (let start = 0; start <= text.length; start++) {
          const found = words.filter((entry) => text.startsWith(entry, start)).map((entry) => entry.length);
          expect(trie.longestMatch(text, start)).toBe(Math.max(0, ...found));
        }
      }),
    );
  });
});

describe('IdList', () => {
  it('grows, truncates and reverses', () => {
    const list = new IdList(0);
    for (let value = 0; value < 100; value++) list.push(value);
    list.pushAll([7, 8, 9]);
    list.truncate(102);
    list.reverseFrom(100);
    expect([...list.toArray().slice(98)]).toEqual([98, 99, 8, 7]);
  });
});
