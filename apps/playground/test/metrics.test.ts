import { expect, test } from 'vitest';
import { activityOf, bytes, parseMetrics } from '../page/state/metrics.js';

const text = `# HELP winnow_kv_blocks Blocks.
# TYPE winnow_kv_blocks gauge
winnow_kv_blocks{model="a \\"b\\"",state="used"} 3
winnow_kv_blocks{model="other",state="used"} 9
winnow_kv_tier_pages{model="a \\"b\\"",tier="cold"} 7
winnow_ffn_active_ratio{model="a \\"b\\"",layer="2"} 0.25
winnow_tokens_per_second{model="a \\"b\\""} 12.34
process_resident_memory_bytes 2500000
`;

test('samples have names, labels with escapes, and values', () => {
  expect(parseMetrics(text)[0]).toEqual({
    name: 'winnow_kv_blocks',
    labels: { model: 'a "b"', state: 'used' },
    value: 3,
  });
});

test('the activity of a model consists of its own samples and those of the process, and of no others', () => {
  expect(activityOf(parseMetrics(text), 'a "b"')).toEqual({
    facts: [
      { label: 'Tokens per second of step time', value: '12.3' },
      { label: 'Memory of the server', value: '2.5 MB' },
    ],
    cacheBlocks: [{ label: 'used', value: 3 }],
    cacheTiers: [],
    cachePages: [{ label: 'cold', value: 7 }],
    weightTiers: [],
    activeRatios: [{ label: '2', value: 0.25 }],
    visitedKeys: [],
    memory: [],
  });
});

const counts = (tokens: number, visible: number, visited: readonly number[], dense = visible): string =>
  [
    `winnow_attention_tokens_total{model="m"} ${tokens}`,
    `winnow_attention_visible_keys_total{model="m",layer="0"} ${dense}`,
    `winnow_attention_visible_keys_total{model="m",layer="3"} ${visible}`,
    `winnow_attention_visited_keys_total{model="m",layer="0"} ${dense}`,
    ...visited.map(
      (keys, head) => `winnow_attention_visited_keys_total{model="m",layer="3",kv_head="${head}"} ${keys}`,
    ),
    'winnow_drafted_tokens_total{model="m"} 8',
    'winnow_accepted_tokens_total{model="m"} 6',
  ].join('\n');

test('visited keys are a share of the visible ones: of what is new, or of all', () => {
  const first = parseMetrics(counts(10, 1000, [500, 250]));
  const second = parseMetrics(counts(12, 1200, [520, 300]));
  const all = [
    { layer: '0', shares: [1] },
    { layer: '3', shares: [0.5, 0.25] },
  ];
  expect(activityOf(first, 'm').visitedKeys).toEqual(all);
  expect(activityOf(second, 'm', first).visitedKeys[1]).toEqual({ layer: '3', shares: [0.1, 0.25] });
  expect(activityOf(first, 'm', first).visitedKeys).toEqual(all);
  expect(activityOf(parseMetrics(counts(0, 0, [0, 0])), 'm').visitedKeys).toEqual([]);
  expect(activityOf(first, 'm').facts).toEqual([{ label: 'Acceptance of drafts', value: '75 % of 8' }]);
});

test.each([
  [999, '999 B'],
  [1000, '1.0 kB'],
  [1.5e12, '1.5 TB'],
  [1.5e16, '15000.0 TB'],
])('%d bytes are %s', (value, expected) => {
  expect(bytes(value)).toBe(expected);
});
