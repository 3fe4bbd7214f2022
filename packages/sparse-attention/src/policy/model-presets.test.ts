import { describe, expect, it } from 'vitest';
import { modelPresets, presetPolicy } from './model-presets.js';

describe('presets', () => {
  it('have the heads and windows of the specification', () => {
    expect(modelPresets.map(({ name, numHeads, numKvHeads }) => `${name} ${numHeads}/${numKvHeads}`)).toEqual([
      'phi-2 32/32',
      'mistral-7b 32/8',
      'llama-3-8b 32/8',
      'llama-3.2-1b 32/8',
      'tinyllama-1.1b 32/4',
      'smollm2-135m 9/3',
    ]);
    for (const { name, windows } of modelPresets) {
      expect(windows[0]).toBeGreaterThanOrEqual(64);
      expect(windows[1]).toBeLessThanOrEqual(256);
      expect(presetPolicy(name)).toMatchObject({
        kind: 'subquadratic',
        window: windows[1],
        blockSize: 64,
        globals: [0],
      });
    }
    expect(() => presetPolicy('gpt-5')).toThrow('expected phi-2 | mistral-7b');
  });
});
