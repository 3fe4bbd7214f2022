import { createRng } from '@winnow/tensor';
import { expect, test } from 'vitest';
import type { GenerationState } from '../generation/state.js';
import { resolveSampling } from '../generation/sampling-options.js';
import { decodeGeneration, encodeGeneration } from './generation-codec.js';

test.each([true, false])('a generation survives encoding and decoding, ended: %s', async (hasEnded) => {
  const rng = createRng(3).state();
  const state: GenerationState = {
    prompt: Int32Array.of(5, 9, 2),
    numConstrained: 1,
    chosen: [7, 4],
    sampling: resolveSampling({ temperature: 0.5, topK: 4, seed: 3 }, {}, () => 0),
    options: { stop: ['end'], ignoreEos: true, logitBias: { 3: -1.5 } },
    rngState: () => rng,
    hasEnded,
  };
  const { json } = encodeGeneration(state);
  const sections: Readonly<Record<string, Int32Array>> = {
    prompt: state.prompt,
    chosen: Int32Array.from(state.chosen),
  };
  const read = await decodeGeneration(
    JSON.parse(JSON.stringify(json)),
    async (name) => sections[name] as Int32Array,
    { vocabSize: 16 },
    (field, message) => {
      throw new Error(`${field}: ${message}`);
    },
  );
  expect({ ...read, rngState: read?.rngState() }).toEqual({ ...state, rngState: rng });
});
