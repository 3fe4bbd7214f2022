import { expect, test } from 'vitest';
import { Counter, expositionOf, Histogram, Observed } from './metrics-registry.js';

test('counters, gauges and histograms in the text format', () => {
  const counter = new Counter('a_total', 'Things.');
  counter.add(1, { model: 'x' });
  counter.add(2, { model: 'x' });
  counter.add(1, { model: 'say "\\hi\\"\n' });
  const gauge = new Observed('gauge', 'b', 'Now.', () => [[{}, 0.5]]);
  const histogram = new Histogram('c', 'Times.', [0.1, 1]);
  for (const value of [0.1, 0.5, 5]) histogram.observe(value, { route: '/' });
  expect(expositionOf([counter, gauge, histogram]).split('\n')).toEqual([
    '# HELP a_total Things.',
    '# TYPE a_total counter',
    'a_total{model="x"} 3',
    'a_total{model="say \\"\\\\hi\\\\\\"\\n"} 1',
    '# HELP b Now.',
    '# TYPE b gauge',
    'b 0.5',
    '# HELP c Times.',
    '# TYPE c histogram',
    'c_bucket{route="/",le="0.1"} 1',
    'c_bucket{route="/",le="1"} 2',
    'c_bucket{route="/",le="+Inf"} 3',
    'c_sum{route="/"} 5.6',
    'c_count{route="/"} 3',
    '',
  ]);
});
