import { ArgumentError, FormatError } from '@winnow/tensor';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { formatAttention, parseAttention } from './attention-spec.js';
import { resolvePolicy } from './resolve-policy.js';
import { parsePolicy } from './text.js';
import { formatTunedPolicy, readTunedPolicy, specOfLayers, type TunedPolicy } from './tuned-policy.js';

const figures = { kld: 0.004, kldError: 0.0005, density: 0.25, ms: 80, denseMs: 100 };
const policy: TunedPolicy = {
  modelHash: 'xxh:1',
  numLayers: 6,
  attention: parseAttention(
    'prefill=streaming:window=512,sinks=4;decode=page-topk:budget=6,page=16;layers=5/decode:dense',
  ),
  budget: { kld: 0.01 },
  contextSize: 2048,
  seed: 1,
  measured: { prefill: figures, decode: { ...figures, ms: 1 }, recall: 0.9, denseRecall: 0.95 },
  text: {
    search: { name: 'the first half of book.txt', numTokens: 4096, hash: 'fnv:1' },
    heldOut: { name: 'the second half of book.txt', numTokens: 4096, hash: 'fnv:2' },
  },
  machine: { name: 'a processor, 2 threads', backend: 'wasm' },
};
const read = (text: string, modelHash?: string): TunedPolicy =>
  readTunedPolicy(text, { source: 'm.policy.json', modelHash });

test('a policy file has everything that was written', () => {
  const { density: _density, ...without } = figures;
  const { recall: _recall, denseRecall: _denseRecall, ...measured } = policy.measured;
  for (const each of [
    policy,
    { ...policy, budget: { recall: 0.95 } },
    { ...policy, budget: { speedup: 2 }, measured: { ...measured, decode: without } },
  ]) {
    expect(read(formatTunedPolicy(each), 'xxh:1')).toEqual(each);
  }
});

test('a file of another model, of a newer version or with other layers is rejected', () => {
  const text = formatTunedPolicy(policy);
  const failure = (changed: string, hash?: string): string => {
    try {
      read(changed, hash);
    } catch (error) {
      expect(error).toBeInstanceOf(FormatError);
      return (error as Error).message;
    }
    throw new Error('accepted');
  };
  expect(failure(text, 'xxh:2')).toContain(
    'expected the hash of the model, xxh:2, found xxh:1 (tuned for another model)',
  );
  expect(failure(text.replace('"version": 1', '"version": 2'))).toContain('policy.version: expected at most 1');
  expect(failure(text.replace('"numLayers": 6', '"numLayers": 5'))).toContain('layers from 0 to 4');
  expect(failure(text.replace('page-topk:', 'page-topq:'))).toContain('policy.attention');
  expect(failure(text.replace('"ms": 80', '"ms": -80'))).toContain('policy.measured.prefill.ms');
  expect(failure(text.slice(1))).toContain('expected JSON');
});

test('the specification of layers resolves to the same layers', () => {
  const policies = ['dense', 'streaming:window=64,sinks=4', 'subquadratic:window=32'].map((text) => parsePolicy(text));
  const one = fc.constantFrom(...policies);
  fc.assert(
    fc.property(fc.array(fc.record({ prefill: one, decode: one }), { minLength: 1, maxLength: 9 }), (layers) => {
      const spec = specOfLayers(layers);
      const again = parseAttention(formatAttention(spec));
      expect(resolvePolicy(again, { numLayers: layers.length })).toEqual(layers);
    }),
  );
  const [dense, streaming] = policies as [TunedPolicy['attention']['prefill'], TunedPolicy['attention']['prefill']];
  const layers = [dense, streaming, streaming, dense, streaming].map((decode) => ({ prefill: dense, decode }));
  expect(formatAttention(specOfLayers(layers))).toBe(
    'prefill=dense;decode=streaming:window=64;layers=0/decode:dense;layers=3/decode:dense',
  );
  expect(() => parseAttention('auto')).toThrow(ArgumentError);
});
