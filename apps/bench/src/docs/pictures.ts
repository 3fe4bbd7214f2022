/** Generates the pictures of the root README; deterministic for the same sources and results. */
import { demoModelUrl } from '@winnow/demo-model';
import { loadModel } from '@winnow/engine';
import { captureAttention, createVisitMaps } from '@winnow/evaluation';
import { drawVisits } from '@winnow/evaluation/plots';
import { createReferenceBackend } from '@winnow/ops';
import { countPairs, formatPolicy, h2oPairs, parsePolicy } from '@winnow/sparse-attention';
import { drawLines, type PlotLine } from '../harness/plots.js';
import type { Figure } from '../harness/figure.js';
import type { ReadResults } from './readme-tables.js';

const lengths = Array.from({ length: 9 }, (_, i) => 512 * 2 ** i);

/** Pairs per head against prompt length, by the formulas of the policies. */
export async function pairCounts(): Promise<string> {
  const policies = ['subquadratic:window=256', 'subquadratic:window=64,block=32', 'h2o:chunk=1024,local=256,heavy=256'];
  const line = (name: string, count: (length: number) => number): PlotLine => ({
    name,
    points: lengths.map((length) => [length, count(length)]),
  });
  const lines = policies.map((text) => {
    const policy = parsePolicy(text, 'prefill');
    if (policy.kind === 'subquadratic') return line(text, (length) => countPairs(policy, length));
    if (policy.kind === 'h2o-prefill') return line(text, (length) => h2oPairs(policy, length).total);
    throw new Error(`no formula for ${formatPolicy(policy)}`);
  });
  return drawPicture({
    ...{ name: 'pair-counts', title: 'Query-key pairs per head for a prompt' },
    ...{ x: 'prompt length in tokens', y: 'pairs', isLogarithmic: true },
    lines: [line('dense', (length) => (length * (length + 1)) / 2), ...lines],
  });
}

/** Milliseconds per generated token against context length, of runs with node-llama-cpp. */
export async function timeOverContext(read: ReadResults): Promise<string> {
  const [winnow, other] = ['#1f77b4', '#d62728'];
  const peer = 'node-llama-cpp';
  const machine = '2026-11-21-xeon-2-cores';
  const line = (file: string, name: string, isPeer: boolean, isDashed: boolean): PlotLine => ({
    name,
    // in a file with several runs, the latest is the first
    points: decodeTimes(read(`${machine}/${file}`).runs[0]?.figures ?? [], isPeer ? peer : undefined),
    style: { color: isPeer ? other : winnow, isDashed },
  });
  return drawPicture({
    ...{
      name: 'time-over-context',
      title: 'Time per token of a 1.1B Llama in Q8_0 on two threads: two interleaved runs',
    },
    ...{ x: 'context length in tokens', y: 'ms per token' },
    lines: [
      line('decode-dense', 'Winnow, dense', false, true),
      line('decode-dense', 'node-llama-cpp, in turns with dense', true, true),
      line('decode-sparse', 'Winnow, streaming:window=128,sinks=4', false, false),
      line('decode-sparse', 'node-llama-cpp, in turns with streaming', true, false),
    ],
  });
}

function decodeTimes(figures: readonly Figure[], peer: string | undefined): [number, number][] {
  const points: [number, number][] = [];
  for (const { suite, case: name, unit, value, ratioOf } of figures) {
    if (suite !== 'decode' || unit !== 'tokens/s') continue;
    const [, length, rest = ''] = /@(\d+)(?:: (.*))?$/.exec(name) ?? [];
    // a figure of Winnow occurs once per peer
    const isWanted = peer === undefined ? rest === '' && ratioOf === 'node-llama-cpp' : rest === peer;
    if (isWanted) points.push([Number(length), 1000 / value]);
  }
  return points;
}

/** The keys that a policy visits in the demo model, with their mass under dense attention. */
export async function attentionMap(): Promise<string> {
  const text = 'subquadratic:window=32,block=16';
  const policy = parsePolicy(text, 'prefill');
  const backend = createReferenceBackend();
  await using model = await loadModel(demoModelUrl, {
    ...{ backend, context: prompt.length, trace: { attention: true }, kvCache: { dtype: 'f32' } },
  });
  const tokens = model.encodePrompt(prompt);
  const layers = [0, model.config.numLayers - 1];
  const { captures } = await captureAttention(model, tokens, { layers });
  const options = { heads: [0, 1, 2], size: 48, backend };
  const maps = (await Promise.all(captures.map((capture) => createVisitMaps(policy, capture, options)))).flat();
  const share =
    maps.reduce((sum, { pairs }) => sum + pairs, 0) / maps.reduce((sum, { densePairs }) => sum + densePairs, 0);
  const mass = maps.reduce((sum, map) => sum + map.mass, 0) / maps.length;
  const percent = (value: number): string => `${(100 * value).toFixed(0)} %`;
  const title = `winnow-tiny, ${tokens.length} tokens, ${text}: ${percent(share)} of the pairs, ${percent(mass)} of the mass`;
  return drawVisits({ title, maps });
}

/** An original text, long enough that most keys lie outside the window. */
const prompt = [
  'The ship had been at sea for nine days when the captain saw the light. It was low and yellow, and it did not move',
  'with the water. He called the mate, and the mate called the boy, and the three of them stood at the rail without a',
  'word. "It is a house," said the boy at last. "There is no house here," said the captain. "There is no land here."',
  'But the light stayed where it was, and when the morning came they saw the wall, the door, and the small window with',
  'a lamp in it. An old woman sat before the door. She looked at the ship as if she had waited for it all her life, and',
  'she said to the captain, "You have been a long time. Your dinner is cold." The captain did not know her, and he did',
  'not know the house; but he took off his hat, and went in, and sat down at the table.',
].join(' ');

/** Element names are numbered per process, so they are normalized. */
async function drawPicture(plot: Parameters<typeof drawLines>[0]): Promise<string> {
  return (await drawLines(plot)).replaceAll(/\bzr\d+-/g, 'zr-');
}
