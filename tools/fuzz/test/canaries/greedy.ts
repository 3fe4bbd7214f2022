/** A target that takes memory without end, from its second input on. */
import type { Target } from '../../src/target.ts';

export async function createTarget(): Promise<Target> {
  return {
    examples: ['ok', 'memory', 'ok'].map((text) => new TextEncoder().encode(text)),
    mutate: (_random, input) => input,
    async run(input) {
      const kept: Uint8Array[] = [];
      while (input[0] === 'm'.charCodeAt(0)) {
        kept.push(new Uint8Array(2 ** 26).fill(1));
        await new Promise((resolve) => setImmediate(resolve));
      }
    },
  };
}
