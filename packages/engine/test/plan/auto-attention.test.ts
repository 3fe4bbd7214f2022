/** `attention: 'auto'`: policy files beside models, of other models, and without one. */
import { mkdtemp, rm, writeFile, copyFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createWasmBackend } from '@winnow/backend-wasm';
import { demoModelUrl } from '@winnow/demo-model';
import type { Backend } from '@winnow/ops';
import { formatTunedPolicy, parseAttention, type TunedPolicy } from '@winnow/sparse-attention';
import { ArgumentError, FormatError } from '@winnow/tensor';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { inspectModel, loadModel, policyFileOf, weightsHash, type LoadOptions, type Model } from '../../src/index.js';
import { inMemory } from '../support/in-memory.js';

const attention = 'prefill=streaming:window=64;decode=page-topk:budget=2,page=16';
const figures = { kld: 0, kldError: 0, ms: 1, denseMs: 1 };
let backend: Backend;
let folder: string;
let policy: TunedPolicy;
beforeAll(async () => {
  backend = await createWasmBackend({ numThreads: 1 });
  folder = await mkdtemp(join(tmpdir(), 'winnow-auto-'));
  policy = {
    modelHash: await weightsHash(demoModelUrl),
    ...{ numLayers: 6, attention: parseAttention(attention), budget: { kld: 0.01 }, contextSize: 256, seed: 1 },
    measured: { prefill: figures, decode: figures },
    text: {
      search: { name: 'a text', numTokens: 256, hash: 'fnv:1' },
      heldOut: { name: 'a text', numTokens: 256, hash: 'fnv:2' },
    },
    machine: { name: 'a machine', backend: 'wasm' },
  };
});
afterAll(async () => {
  await backend.dispose();
  await rm(folder, { recursive: true });
});

const notices: string[] = [];
const onEvent: LoadOptions['onEvent'] = (event) => {
  if (event.kind === 'notice') notices.push(event.text);
};
const demo = inMemory(demoModelUrl);
const load = (options: LoadOptions): Promise<Model> => {
  notices.length = 0;
  return loadModel(demo, { backend, context: 256, attention: 'auto', onEvent, ...options });
};

test('the policy of the file, from each kind of source', async () => {
  const text = formatTunedPolicy(policy);
  const path = join(folder, 'any.json');
  await writeFile(path, text);
  for (const policyFile of [policy, new TextEncoder().encode(text), new Blob([text]), path]) {
    await using model = await load({ policyFile });
    expect(model.attention).toBe(attention);
    expect(notices).toEqual([]);
  }
});

test('the file beside the model, and dense attention with a notice where there is none', async () => {
  const path = join(folder, 'small.safetensors');
  await copyFile(new URL(demoModelUrl), path);
  const names = ['small.gguf', 'small/', 'small.onnx', 'https://a.b/small.gguf?x=1', 'v1.5/'];
  expect(names.map((name) => policyFileOf(name))).toEqual([
    ...['small.policy.json', 'small.policy.json', 'small.policy.json'],
    ...['https://a.b/small.policy.json', 'v1.5.policy.json'],
  ]);
  const options = { backend, context: 256, attention: 'auto', onEvent };
  notices.length = 0;
  await using without = await loadModel(path, options);
  expect(without.attention).toBe('dense');
  expect(notices).toEqual([
    `attention auto: there is no file ${join(folder, 'small.policy.json')}, so attention is dense; winnow tune finds a policy`,
  ]);
  await writeFile(join(folder, 'small.policy.json'), formatTunedPolicy(policy));
  await using tuned = await loadModel(path, options);
  expect(tuned.attention).toBe(attention);
  // page boxes are part of the cache that a plan counts
  const plain = await inspectModel(path, { context: 256 });
  const planned = await inspectModel(path, { context: 256, attention: 'auto' });
  expect(planned.plan.kvBytes).toBeGreaterThan(plain.plan.kvBytes);
  await using inMemoryModel = await load({});
  expect([inMemoryModel.attention, notices[0]]).toEqual(['dense', expect.stringContaining('no policyFile is given')]);
});

test('files of another model, damaged files and files without auto are rejected', async () => {
  const other = { ...policy, modelHash: 'xxh:other' };
  const expected = /expected the hash of the model, xxh:[0-9a-f]{32}, found xxh:other \(tuned for another model\)/;
  await expect(load({ policyFile: other })).rejects.toThrow(expected);
  const bytes = new TextEncoder().encode(formatTunedPolicy(other));
  await expect(load({ policyFile: bytes })).rejects.toThrow(expected);
  await expect(load({ policyFile: bytes.subarray(9) })).rejects.toThrow(FormatError);
  await expect(load({ attention: 'dense', policyFile: policy })).rejects.toThrow(ArgumentError);
});

test('a policy that does not suit the other options gives way to dense attention, with a notice', async () => {
  // streaming in some layers only: its pages could not be offloaded
  await using model = await load({ policyFile: policy, kvCache: { eviction: 'least-attended' } });
  expect(model.attention).toBe('dense');
  expect(notices).toEqual([
    expect.stringMatching(/does not suit the other options .*least-attended.*attention is dense$/),
  ]);
  await expect(load({ policyFile: policy, context: -1 })).rejects.toThrow('context');
});

test('a prompt in prefill and the tokens after it in decode have the policies of their phases', async () => {
  const tokens = Int32Array.from({ length: 96 }, (_, i) => (i * 7) % 500);
  await using model = await load({ policyFile: policy });
  await using prefilled = await load({ attention: 'prefill=streaming:window=64;decode=dense' });
  await using dense = await load({ attention: 'dense' });
  const decoded = { positions: [79, 80, 95], phase: 'decode', decodeFrom: 80 } as const;
  const [last, first, end] = await model.logprobs(tokens, decoded);
  const [sameLast, ...others] = await prefilled.logprobs(tokens, decoded);
  const all = await dense.logprobs(tokens, decoded);
  expect(last).toEqual(sameLast); // the last token of the prompt
  expect(first).not.toEqual(others[0]); // pages are chosen from the first decoded token on
  expect(end).not.toEqual(all[2]);
  for (const wrong of [{ decodeFrom: 3 }, { phase: 'decode', decodeFrom: 97 }, { phase: 'decode', decodeFrom: -1 }]) {
    await expect(dense.logprobs(tokens, wrong as typeof decoded)).rejects.toThrow('decodeFrom');
  }
});
