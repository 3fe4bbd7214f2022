/** Policy files: the tree of their JSON, and the bytes. */
import { formatTunedPolicy, parseAttention, readTunedPolicy, type TunedPolicy } from '@winnow/sparse-attention';
import { mutateJsonText } from '@winnow/test-utils';
import { bytesOf, textOf, type Target } from '../../src/target.ts';

const figures = { kld: 0.004, kldError: 0.0005, density: 0.25, ms: 80, denseMs: 100 };
const policy: TunedPolicy = {
  modelHash: 'xxh:1',
  numLayers: 6,
  attention: parseAttention('prefill=streaming:window=64;decode=page-topk:budget=6,page=16;layers=3-5/decode:sparq'),
  budget: { kld: 0.01 },
  contextSize: 2048,
  seed: 1,
  measured: { prefill: figures, decode: figures, recall: 0.9, denseRecall: 0.95 },
  text: {
    search: { name: 'a', numTokens: 4096, hash: 'fnv:1' },
    heldOut: { name: 'b', numTokens: 4096, hash: 'fnv:2' },
  },
  machine: { name: 'a processor', backend: 'wasm' },
};

export async function createTarget(): Promise<Target> {
  return {
    examples: [bytesOf(formatTunedPolicy(policy))],
    mutate: (random, input) => bytesOf(mutateJsonText(random, textOf(input))),
    async run(input) {
      readTunedPolicy(textOf(input), { source: 'fuzz.policy.json', modelHash: 'xxh:1' });
    },
  };
}
