/** Policies as programs over blocks in any order, on reference and WebAssembly, against dense and an AttentionLayer. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { createReferenceBackend, type Backend } from '@winnow/ops';
import { ArgumentError, type DType, type Tensor3 } from '@winnow/tensor';
import { afterAll, describe, expect, it } from 'vitest';
import { randomTensor } from '../../test/dense-truth.js';
import { PagedLayer, type LayerStep } from '../../test/layer-program.js';
import { AttentionLayer } from '../layer/attention-layer.js';
import type { AttentionPhase } from '../policy/kinds.js';
import { resolvePolicy } from '../policy/resolve-policy.js';
import { createAttentionLowering } from './attention-lowering.js';
import { attentionRequirements, checkBlockSize } from './requirements.js';

const [numHeads, numKvHeads, headDim, blockSize] = [6, 2, 32, 16];
const numTokens = 150;
const q = randomTensor(1, numTokens, numHeads, headDim, 2);
const k = randomTensor(2, numTokens, numKvHeads, headDim);
const v = randomTensor(3, numTokens, numKvHeads, headDim);

const backends: Record<string, Backend> = {
  reference: createReferenceBackend(),
  wasm: await createWasmBackend({ numThreads: 1, maxMemoryBytes: 2 ** 26 }),
};
afterAll(async () => {
  for (const backend of Object.values(backends)) await backend.dispose();
});

/** Two chunks of a prompt, a single token, more of the prompt, then single tokens and drafts, some of them rejected. */
const steps: readonly Omit<LayerStep, 'blocks' | 'state'>[] = [
  { phase: 'prefill', begin: 0, end: 70 },
  { phase: 'prefill', begin: 70, end: 101 },
  { phase: 'decode', begin: 101, end: 102 },
  { phase: 'decode', begin: 102, end: 103 },
  { phase: 'prefill', begin: 103, end: 140 },
  { phase: 'decode', begin: 140, end: 145 },
  { phase: 'decode', begin: 142, end: 143 },
  { phase: 'decode', begin: 143, end: 144 },
];

/** Blocks in another order than in memory. */
const blocks = [7, 2, 9, 0, 11, 4, 10, 5, 1, 8, 3, 6];

/** @param masses receives the masses of each step that reports them, summed over its tokens: `[numKvHeads, slots]` */
async function runPolicy(
  backend: Backend,
  spec: string,
  dtype: DType = 'f32',
  masses?: (Float32Array | undefined)[],
): Promise<Float32Array[]> {
  const withMass = new Set<AttentionPhase>();
  const loweringOf = (phase: AttentionPhase) =>
    createAttentionLowering(resolvePolicy(spec, { numLayers: 1 }), phase, {
      mass: masses !== undefined,
      observe: (b, _layer, { mass }) => {
        if (mass === undefined) return;
        withMass.add(phase);
        b.output('mass', mass);
      },
    });
  const lowerings = { prefill: loweringOf('prefill'), decode: loweringOf('decode') };
  const shape = { numHeads, numKvHeads, headDim, blockSize, numBlocks: 12, dtype, numTokens };
  const layer = await PagedLayer.create(backend, lowerings, { q, k, v }, shape);
  const outputs: Float32Array[] = [];
  const slots = numKvHeads * blocks.length * blockSize;
  for (const step of steps) {
    outputs.push(await layer.run({ ...step, blocks, state: 1 }));
    if (!withMass.has(step.phase)) {
      masses?.push(undefined);
      continue;
    }
    const rows = new Float32Array((step.end - step.begin) * slots);
    await layer.read(step.phase, 'mass', rows);
    const sums = new Float32Array(slots);
    for (const [i, mass] of rows.entries()) sums[i % slots] += mass;
    masses?.push(sums);
  }
  await layer.dispose();
  return outputs;
}

/** The same steps on a layer over the reference backend. */
async function runLayer(spec: string): Promise<{ outputs: Float32Array[]; masses: Float32Array[] }> {
  const [policies] = resolvePolicy(spec, { numLayers: 1 });
  await using layer = new AttentionLayer({ ...policies, numHeads, numKvHeads, headDim, capacity: numTokens });
  const [outputs, masses]: [Float32Array[], Float32Array[]] = [[], []];
  for (const { phase, begin, end } of steps) {
    if (begin < layer.length) await layer.truncate(begin);
    const mass = new Float32Array(numKvHeads * blocks.length * blockSize);
    const [queries, keys, values] = [q, k, v].map((tensor) => tensor.slice(begin, end)) as [Tensor3, Tensor3, Tensor3];
    outputs.push((await layer[phase](queries, keys, values, { mass })).out.data);
    masses.push(mass);
  }
  return { outputs, masses };
}

function largestDifference(a: readonly Float32Array[], b: readonly Float32Array[]): number {
  let largest = 0;
  for (const [step, values] of a.entries()) {
    const others = b[step] as Float32Array;
    expect(others.length).toBe(values.length);
    for (const [i, value] of values.entries()) largest = Math.max(largest, Math.abs(value - (others[i] as number)));
  }
  return largest;
}

/** Outputs are means of values below 5: a few hundred roundings of each, and of logits below 30. */
const rounding = 5 * 300 * 2 ** -24 * 30;

const keepingAll = [
  'subquadratic:window=1000,landmarks=off',
  'subquadratic:window=1000,block=8,landmarks=outside-window,bias=log-count',
  'streaming:window=1000,sinks=4',
  'prefill=streaming:window=1,sinks=1000;decode=sparq:rank=4,topk=1000',
  'decode=sparq:rank=32,topk=1000,layout=both',
  'decode=page-topk:budget=all,page=8',
  'decode=verified-topk:budget=1000,page=8',
  'oracle-topk:k=1000',
  'prefill=streaming:window=9,sinks=2,delta=1',
  'prefill=h2o:chunk=1000;decode=page-topk:budget=1000,page=16',
];

const keepingSome = [
  'subquadratic:window=9,block=8',
  'subquadratic:window=20,block=16,globals=0+3,landmarks=outside-window,bias=log-count',
  'prefill=subquadratic:window=16,block=16;decode=subquadratic:window=5,block=4',
  'streaming:window=24,sinks=3',
  'decode=sparq:rank=8,topk=24',
  'decode=sparq:rank=8,topk=24,layout=both,grouped=false,mean=false',
  'prefill=subquadratic:window=16,block=16;decode=sparq:rank=8,topk=24,local=5',
  'decode=verified-topk:epsilon=0.6,budget=1,page=8,window=9,sinks=2,sample=12',
  'oracle-topk:k=12',
  'prefill=h2o:chunk=32,local=6,heavy=8,sinks=2',
  'prefill=streaming:window=12,sinks=3,delta=16',
  'prefill=subquadratic:window=9,block=8,delta=8;decode=streaming:window=20',
  'prefill=h2o:chunk=16,local=4,heavy=4,delta=5;decode=sparq:rank=8,topk=24',
];

describe.each(Object.keys(backends))('programs on %s', (name) => {
  const backend = backends[name] as Backend;

  it.each(keepingAll)('%s skips nothing and equals dense', async (spec) => {
    const dense = await runPolicy(backend, 'dense');
    expect(largestDifference(await runPolicy(backend, spec), dense)).toBeLessThan(rounding);
  });

  it.each(keepingSome)('%s equals a layer with slots in order on the reference', async (spec) => {
    const masses: (Float32Array | undefined)[] = [];
    const outputs = await runPolicy(backend, spec, 'f32', masses);
    const expected = await runLayer(spec);
    expect(largestDifference(outputs, expected.outputs)).toBeLessThan(rounding);
    // probabilities of up to 70 tokens and 3 heads, with the rounding errors of their logits
    const ofMasses = 210 * 2 ** -24 * 300;
    for (const [step, mass] of masses.entries()) {
      if (mass !== undefined) {
        expect(largestDifference([mass], [expected.masses[step] as Float32Array])).toBeLessThan(ofMasses);
      }
    }
  });

  it.each(['f16', 'q8_0'] as const)('a cache in %s stays close', async (dtype) => {
    for (const spec of keepingSome.slice(0, 4)) {
      const exact = await runPolicy(backend, spec);
      // keys of norm 6 with errors of 1/254 of their largest value shift logits by a few hundredths
      expect(largestDifference(await runPolicy(backend, spec, dtype), exact)).toBeLessThan(0.4);
    }
  });
});

it('results and masses are bit-identical for any number of threads', async () => {
  const specs = [...keepingSome, 'decode=page-topk:budget=3,page=8', 'prefill=h2o:chunk=128,local=6,heavy=8'];
  const runAt = async (numThreads: number): Promise<(Float32Array | undefined)[][]> => {
    const backend = await createWasmBackend({ numThreads, maxMemoryBytes: 2 ** 26, minSharedWork: 0 });
    const found: (Float32Array | undefined)[][] = [];
    for (const spec of specs) {
      const masses: (Float32Array | undefined)[] = [];
      const outputs = await runPolicy(backend, spec, 'f32', masses);
      found.push([...outputs, ...masses]);
    }
    await backend.dispose();
    return found;
  };
  const alone = await runAt(1);
  for (const numThreads of [2, 4]) {
    for (const [index, found] of (await runAt(numThreads)).entries()) expect(found, specs[index]).toEqual(alone[index]);
  }
});

describe('requirements', () => {
  const of = (spec: string) => attentionRequirements(resolvePolicy(spec, { numLayers: 4 }));

  it('name block sizes, states and the order of slots', () => {
    expect(of('dense')).toEqual({ blockSizes: [], needsStates: false, needsOrderedSlots: false, reads: undefined });
    expect(of('prefill=subquadratic:block=64;decode=page-topk:page=16')).toMatchObject({
      blockSizes: [16, 64],
      needsOrderedSlots: true,
    });
    expect(of('subquadratic:landmarks=off').blockSizes).toEqual([]);
    expect(of('prefill=h2o').needsStates).toBe(true);
    expect(of('streaming:delta=64')).toMatchObject({ needsStates: true, reads: undefined });
    expect(of('streaming:window=100,sinks=4').reads).toEqual({ sinks: 4, window: 100 });
    expect(of('prefill=streaming;decode=streaming;dense-first=1').reads).toBeUndefined();
  });

  it('reject a cache with incompatible blocks', async () => {
    checkBlockSize(of('subquadratic:block=32'), 64);
    expect(() => checkBlockSize(of('subquadratic:block=32'), 48)).toThrow(/multiple of 32 tokens.*48/);
    await expect(runPolicy(backends['reference'] as Backend, 'subquadratic:block=32')).rejects.toThrow(ArgumentError);
    const globals = Array.from({ length: 17 }, (_, i) => i).join('+');
    await expect(
      runPolicy(backends['reference'] as Backend, `subquadratic:block=8,globals=${globals}`),
    ).rejects.toThrow(/at most 16/);
  });
});
