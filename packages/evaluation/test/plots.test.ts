import { parsePolicy } from '@winnow/sparse-attention';
import { describe, expect, it } from 'vitest';
import { syntheticCaptures } from '../src/attention/synthetic.js';
import { createVisitMaps } from '../src/attention/visit-map.js';
import { drawQuality, drawTime } from '../src/plots/evaluation-plots.js';
import { drawVisits } from '../src/plots/visit-drawing.js';
import type { EvaluationReport } from '../src/suite/evaluate.js';
import { checkWellFormed } from './well-formed.js';

/** A report with the fields that the plots read. */
function reportOf(
  configurations: readonly { label: string; density: number; divergence: number; perSecond: number }[],
): EvaluationReport {
  return {
    model: 'a <model> & more',
    numTokens: 64,
    configurations: configurations.map(({ label, density, divergence, perSecond }) => ({
      label,
      density: { decode: density },
      logits: { decode: { divergence: { mean: divergence } } },
      speed: [{ length: 32, promptTokensPerSecond: 2 * perSecond, tokensPerSecond: perSecond }],
    })),
  } as unknown as EvaluationReport;
}

const figures = [
  { label: 'sparq:topk=16', density: 0.25, divergence: 0.1, perSecond: 100 },
  { label: 'sparq:topk=32', density: 0.5, divergence: 0.01, perSecond: 50 },
];

describe('plots of an evaluation', () => {
  it('are well-formed SVG with all families and configurations', () => {
    const quality = String(drawQuality(reportOf(figures)));
    checkWellFormed(quality);
    expect(quality).toContain('sparq, decode');
    expect(quality).toContain('a &lt;model&gt; &amp; more');
    const time = String(drawTime(reportOf(figures), 'decode'));
    checkWellFormed(time);
    for (const { label } of figures) expect(time).toContain(label);
  });

  it('are missing when nothing was measured', () => {
    const [first] = figures;
    expect(drawQuality(reportOf([{ ...first, density: 1 }]))).toBeUndefined();
    expect(drawTime(reportOf([]), 'prefill')).toBeUndefined();
  });
});

describe('visit drawings', async () => {
  const [capture] = syntheticCaptures(64, 1);
  const maps = await createVisitMaps(parsePolicy('subquadratic:window=8,block=8'), capture, { heads: [0, 1] });

  it('are well-formed for any title, and label panels, pairs and mass', () => {
    const svg = drawVisits({ title: 'a < b & "c" \u0000 \u001b', maps });
    checkWellFormed(svg);
    for (const [i, { mass, pairs, densePairs }] of maps.entries()) {
      expect(svg).toContain(`local, head ${i}`);
      expect(svg).toContain(
        `${((100 * pairs) / densePairs).toFixed(1)}% of the pairs, ${(100 * mass).toFixed(1)}% of the mass`,
      );
    }
  });

  it('show visited and missed keys, and no future ones', async () => {
    const svg = drawVisits({ title: '', maps });
    expect(svg).toContain('#fdd0a2'); // missed
    expect(svg).toContain('#d9ead3'); // landmarks
    for (const [, column, row] of svg.matchAll(/M(\d+) (\d+)h/g))
      expect(Number(column)).toBeLessThanOrEqual(Number(row));
    const [dense] = await createVisitMaps(parsePolicy('dense'), capture, { heads: [0] });
    const exact = drawVisits({ title: '', maps: [dense] });
    expect(/<path fill="#(7f0000|d7301f|fc8d59|fdd0a2)"/.test(exact)).toBe(false);
  });
});

it('the check for well-formedness rejects malformed XML', () => {
  for (const broken of [
    '<svg><g></svg>',
    '<svg a=b/>',
    '<svg>&nbsp;</svg>',
    '<svg/><svg/>',
    '<svg>',
    '<svg>a < b</svg>',
  ]) {
    expect(() => checkWellFormed(broken)).toThrow('SVG');
  }
});
