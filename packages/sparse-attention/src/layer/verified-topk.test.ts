import { expect, it } from 'vitest';
import { describeBackends } from '../../test/backends.js';
import { outputErrors } from '../quality/metrics.js';
import { syntheticAttention } from '../quality/synthetic.js';
import { AttentionLayer } from './attention-layer.js';
import { attend } from './attend.js';

const { q, k, v } = syntheticAttention({ kind: 'heavy-hitters', seqLen: 400, numHeads: 4, numKvHeads: 2, headDim: 16 });
const text = 'verified-topk:epsilon=0.3,page=8,window=16,sample=24';
const sizes = { numHeads: 4, numKvHeads: 2, headDim: 16, capacity: 400 };
const begin = 392;
const queries = q.slice(begin, 400);

describeBackends('verified-topk', (backend) => {
  it('visits a part of the keys, each once, and reports an error within epsilon', async () => {
    let numVisited = 0;
    const onVisit = ({ tokens, numHeads }: { tokens: Int32Array; numHeads: number }): void => {
      expect(new Set(tokens).size).toBe(tokens.length);
      numVisited += tokens.length * numHeads;
    };
    const { out, pairs, density, errorEstimate = [] } = await attend(text, queries, k, v, { backend, onVisit });
    const { out: exact } = await attend('dense', queries, k, v, { backend });
    // a weight below 2^-126 of the largest one is 0 in f32, and its key is not reported
    expect(numVisited).toBeLessThanOrEqual(pairs);
    expect(numVisited).toBeGreaterThan(0.9 * pairs);
    expect(density).toBeLessThan(0.9);
    expect(errorEstimate).toHaveLength(8 * 4);
    for (const estimate of errorEstimate) expect(estimate).toBeLessThanOrEqual(0.3);
    const errors = [0, 1, 2, 3].flatMap((head) => [...outputErrors(exact, out, head)]);
    expect(errors.filter((error) => error > 0.3).length).toBeLessThanOrEqual(6); // 32 rows, 2 expected at most
    expect(Math.max(...errors)).toBeGreaterThan(1e-4); // it is a sample
  });

  it('draws by seed and position: the batch changes nothing, the seed does', async () => {
    const { out: together } = await attend(text, queries, k, v, { backend });
    await using layer = new AttentionLayer({ ...sizes, backend, decode: text });
    await layer.append(k, v);
    for (let i = 0; i < queries.seqLen; i++) {
      const { out } = await layer.attend('decode', queries.slice(i, i + 1), begin + i);
      expect(out.data).toEqual(together.slice(i, i + 1).data);
    }
    const { out: other } = await attend(`${text},seed=1`, queries, k, v, { backend });
    expect(other.data).not.toEqual(together.data);
  });

  it('reads everything where no sample is good enough', async () => {
    const { density, errorEstimate } = await attend(`${text},epsilon=1e-9`.replace('epsilon=0.3,', ''), queries, k, v, {
      backend,
    });
    expect(density).toBe(1);
    expect(errorEstimate).toEqual(new Float32Array(32));
  });
});
