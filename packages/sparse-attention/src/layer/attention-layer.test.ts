/** Every policy equals dense when it skips nothing, and reports the keys that it visits. */
import { ArgumentError, CapacityError, ReleasedError, ShapeError, type Tensor3 } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { describeBackends } from '../../test/backends.js';
import { denseTruth, largestDifference, randomTensor, roundingBound, wasmBound } from '../../test/dense-truth.js';
import type { KeyVisit } from './options.js';
import { attend } from './attend.js';
import { AttentionLayer, type AttentionLayerOptions } from './attention-layer.js';

const seqLen = 70;
const headDim = 32;

interface Tensors {
  readonly q: Tensor3;
  readonly k: Tensor3;
  readonly v: Tensor3;
}

const dataOf = (numHeads: number, numKvHeads: number): Tensors => ({
  q: randomTensor(11, seqLen, numHeads, headDim),
  k: randomTensor(12, seqLen, numKvHeads, headDim),
  v: randomTensor(13, seqLen, numKvHeads, headDim),
});

const part = ({ q, k, v }: Tensors, begin: number, end: number): [Tensor3, Tensor3, Tensor3] => [
  q.slice(begin, end),
  k.slice(begin, end),
  v.slice(begin, end),
];

const everything = [
  'dense',
  'oracle-topk:k=70',
  'subquadratic:window=70,landmarks=off',
  'subquadratic:window=70,block=8,landmarks=outside-window,bias=none',
  'streaming:window=70,sinks=0',
  'streaming:window=60,sinks=10',
  'sparq:rank=32,topk=70',
  'sparq:rank=32,topk=70,grouped=false,layout=both',
  'page-topk:budget=all,page=8,window=4,sinks=3',
  'page-topk:budget=20,page=4,window=1,sinks=0',
  'verified-topk:budget=20,page=4,window=1,sinks=0',
];

const groups: readonly (readonly [number, number])[] = [
  [4, 4],
  [6, 2],
  [4, 1],
];

describeBackends('layers that keep everything', (backend, isReference) => {
  describe.each(groups)('%i query heads, %i KV heads', (numHeads, numKvHeads) => {
    const data = dataOf(numHeads, numKvHeads);
    const expected = denseTruth(data.q, data.k, data.v);
    const bound = isReference ? roundingBound(data.v) : wasmBound(data);
    const sizes = { backend, numHeads, numKvHeads, headDim, capacity: seqLen };

    it.each(everything)('%s equals dense in one call', async (policy) => {
      const { out, pairs, densePairs, density } = await attend(policy, data.q, data.k, data.v, { backend });
      expect(largestDifference(out, expected)).toBeLessThan(bound);
      expect(densePairs).toBe((numHeads * seqLen * (seqLen + 1)) / 2);
      expect([pairs, density]).toEqual([densePairs, 1]);
    });

    it.each(everything)('%s equals dense token by token, after a dense prompt', async (decode) => {
      await using layer = new AttentionLayer({ ...sizes, decode });
      const start = await layer.prefill(...part(data, 0, 40));
      expect(largestDifference(start.out, expected.slice(0, 40))).toBeLessThan(bound);
      for (let i = 40; i < seqLen; i++) {
        const { out } = await layer.decode(...part(data, i, i + 1));
        expect(largestDifference(out, expected.slice(i, i + 1))).toBeLessThan(bound);
      }
      expect(layer.report().density).toBe(1);
    });
  });
});

/** Runs a prompt and drafts of 3 tokens; with `rejected`, other drafts are run and truncated before each. */
async function runDrafts(options: AttentionLayerOptions, data: Tensors, rejects: boolean): Promise<Tensor3[]> {
  await using layer = new AttentionLayer(options);
  await layer.prefill(...part(data, 0, 33));
  const outs: Tensor3[] = [];
  for (let i = 33; i < 63; i += 3) {
    if (rejects) {
      const [q, k, v] = [options.numHeads, options.numKvHeads, options.numKvHeads].map((heads) =>
        randomTensor(i, 7, heads, headDim),
      ) as [Tensor3, Tensor3, Tensor3];
      await layer.decode(q, k, v);
      await layer.truncate(i);
    }
    outs.push((await layer.decode(...part(data, i, i + 3))).out);
  }
  return outs;
}

describeBackends('drafts', (backend) => {
  const data = dataOf(6, 2);
  const sizes = { backend, numHeads: 6, numKvHeads: 2, headDim, capacity: seqLen };
  const drafted = ['sparq:rank=4,topk=9', 'sparq:rank=4,topk=9,layout=both', 'page-topk:budget=2,page=4,window=3'];

  it.each([...everything, ...drafted, 'subquadratic:window=8,block=4'])(
    '%s: rejected drafts leave no trace',
    async (decode) => {
      const options = { ...sizes, decode };
      const [once, again] = [await runDrafts(options, data, false), await runDrafts(options, data, true)];
      expect(again.map(({ data: values }) => values)).toEqual(once.map(({ data: values }) => values));
    },
  );
});

describeBackends('reports', (backend) => {
  const data = dataOf(6, 2);

  it.each([
    'dense',
    'oracle-topk:k=9',
    'streaming:window=9,sinks=2',
    'subquadratic:window=9,landmarks=off',
    'sparq:rank=8,topk=9',
    'sparq:rank=8,topk=9,grouped=false',
    'page-topk:budget=2,page=4,window=3',
    'h2o:chunk=16,local=4,heavy=4',
  ])('%s reports the attention mass of the visited keys, 1 per query head', async (policy) => {
    const [numQueries, { q, k, v }] = [3, data];
    const first = policy.startsWith('h2o') ? 0 : seqLen - numQueries;
    const mass = new Float32Array(2 * seqLen);
    const visited = new Set<number>();
    const queries = new Set<string>();
    let pairsVisited = 0;
    const { pairs } = await attend(policy, q.slice(first, seqLen), k, v, {
      backend,
      mass,
      onVisit({ query, firstHead, numHeads, tokens, blocks }) {
        pairsVisited += numHeads * (tokens.length + blocks.length);
        for (let h = firstHead; h < firstHead + numHeads; h++) {
          queries.add(`${query} ${h}`);
          for (const j of tokens) visited.add(Math.floor(h / 3) * seqLen + j);
        }
      },
    });
    expect(queries.size).toBe(6 * (seqLen - first));
    expect(pairsVisited).toBe(pairs);
    expect(mass.reduce((a, b) => a + b, 0) / (6 * (seqLen - first))).toBeCloseTo(1, 5);
    for (const [i, value] of mass.entries()) expect(value > 0).toBe(visited.has(i));
  });
});

describeBackends('runs', (backend) => {
  const data = dataOf(6, 2);
  const sizes = { backend, numHeads: 6, numKvHeads: 2, headDim, capacity: seqLen };

  it.each(['dense', 'oracle-topk:k=9', 'subquadratic:window=9,block=8'])(
    '%s reports keys on both sides of bidirectional queries',
    async (policy) => {
      const { q, k, v } = data;
      let pairsVisited = 0;
      let numLater = 0;
      const onVisit = ({ query, numHeads, tokens, blocks }: KeyVisit): void => {
        pairsVisited += numHeads * (tokens.length + blocks.length);
        numLater += tokens.filter((j) => j > query).length;
      };
      const { pairs, densePairs } = await attend(policy, q, k, v, { backend, causal: false, onVisit });
      expect(pairsVisited).toBe(pairs);
      expect(densePairs).toBe(6 * seqLen * seqLen);
      expect(numLater).toBeGreaterThan(0);
    },
  );

  it('splits long calls into runs with the same results', async () => {
    for (const prefill of ['dense', 'subquadratic:window=8,block=4', 'h2o:chunk=16,local=4,heavy=6']) {
      const outs: Tensor3[] = [];
      for (const maxTokens of [70, 7]) {
        await using layer = new AttentionLayer({ ...sizes, prefill, maxTokens });
        outs.push((await layer.prefill(data.q, data.k, data.v)).out);
      }
      expect(largestDifference(outs[0] as Tensor3, outs[1] as Tensor3)).toBeLessThan(wasmBound(data));
    }
  });

  it('reports visited pairs and the size of the cache', async () => {
    await using layer = new AttentionLayer({
      ...sizes,
      decode: 'streaming:window=5,sinks=1',
      dtype: { keys: 'q8_0', values: 'f32' },
    });
    expect(layer.report()).toMatchObject({ prefillPairs: 0, decodePairs: 0, density: 1 });
    await layer.prefill(...part(data, 0, 10));
    await layer.decode(...part(data, 10, 12));
    const { prefillPairs, decodePairs, densePairs, cacheBytes } = layer.report();
    expect([prefillPairs, decodePairs, densePairs]).toEqual([6 * 55, 6 * 12, 6 * 78]);
    expect(cacheBytes).toBe(2 * 128 * (34 + 128)); // two blocks of 64 slots, two heads, rows of 34 and 128 bytes
    expect(layer.length).toBe(12);
  });
});

describe('errors', () => {
  const data = dataOf(4, 4);
  const sizes = { numHeads: 4, numKvHeads: 4, headDim };

  it('names invalid options', async () => {
    const { q, k, v } = data;
    await expect(attend('sparq', q, k, v, { causal: false })).rejects.toThrow(
      'bidirectional attention: expected dense | subquadratic | oracle-topk, got sparq',
    );
    expect(() => new AttentionLayer({ ...sizes, prefill: 'sparq', capacity: 9 })).toThrow(
      /^prefill: expected .*, got sparq, which is for decode only$/,
    );
    expect(() => new AttentionLayer({ ...sizes, decode: 'streaming:delta=8', capacity: 9 })).toThrow(
      'decode: streaming: delta: expected 0, got 8, which corrects prefill only',
    );
    expect(() => new AttentionLayer(sizes)).toThrow('capacity');
    expect(() => new AttentionLayer({ ...sizes, numHeads: 5, capacity: 9 })).toThrow(ShapeError);
    expect(() => new AttentionLayer({ ...sizes, capacity: 0 })).toThrow('capacity: expected a positive integer, got 0');
  });

  it('invalid calls are rejected without side effects', async () => {
    const { q, k, v } = data;
    const layer = new AttentionLayer({ ...sizes, capacity: 9 });
    await expect(layer.prefill(q, k, v)).rejects.toThrow(CapacityError);
    await expect(layer.prefill(q, k, v)).rejects.toThrow('needed 70 tokens, available 9 tokens');
    expect(layer.length).toBe(0);
    await expect(layer.truncate(1)).rejects.toThrow('expected 0 to 0, got 1');
    await layer.prefill(...part(data, 0, 5));
    await expect(layer.attend('decode', q.slice(4, 6), 4)).rejects.toThrow('within the 5 cached tokens');
    const narrow = randomTensor(1, 1, 3, headDim);
    await expect(layer.decode(narrow, k.slice(5, 6), v.slice(5, 6))).rejects.toThrow('[1, 4, 32]');
    const mass = new Float32Array(4 * 5);
    await expect(layer.decode(...part(data, 5, 6), { mass })).rejects.toThrow('mass, expected [4, at least 6]');
    await expect(layer.heavyHitters()).rejects.toThrow(ArgumentError);
    const [first, second] = await Promise.allSettled([1, 2].map(() => layer.attend('decode', q.slice(0, 1), 4)));
    expect([first?.status, second?.status]).toEqual(['fulfilled', 'rejected']);
    await layer.close();
    await layer.close();
    await expect(layer.append(k, v)).rejects.toThrow(ReleasedError);
  });
});
