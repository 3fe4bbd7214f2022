import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { installPeer } from './install.js';
import { startPeer, type Peer } from './peer.js';
import type { PeerSettings } from './protocol.js';

/**
 * A fake node-llama-cpp: the next token is the sum of all tokens modulo 100. `vocabulary` logits are the negative
 * distances to that token. Token 99 ends the process, token 98 is an error.
 */
const fakeModule = `
const next = (tokens) => tokens.reduce((sum, token) => sum + token, 0) % 100;
function sequence() {
  let history = [];
  const add = (tokens) => {
    if (tokens.includes(99)) process.exit(7);
    if (tokens.includes(98)) throw new Error('token 98');
    history.push(...tokens);
  };
  return {
    get nextTokenIndex() { return history.length; },
    async clearHistory() { history = []; },
    async eraseContextTokenRanges([{ start, end }]) { history.splice(start, end - start); },
    async evaluateWithoutGeneratingNewTokens(tokens) { add(tokens); },
    async *evaluate(tokens) {
      for (let input = tokens; ; ) {
        add(input);
        const token = next(history);
        yield token;
        input = [token];
      }
    },
    async controlledEvaluate(input) {
      add(input.map((item) => (Array.isArray(item) ? item[0] : item)));
      const best = next(history);
      const logits = new Map([[best, 0]]);
      for (let id = 0; id < 100; id++) if (id !== best) logits.set(id, -Math.abs(id - best));
      return input.map((item) => (Array.isArray(item) ? { next: { logits } } : undefined));
    },
  };
}
export const getLlama = async (options) => {
  if (options.gpu !== false || options.build !== 'never') throw new Error('would compile');
  return {
    async loadModel({ modelPath }) {
      if (modelPath !== 'model.gguf') throw new Error('no such model');
      return { createContext: async () => ({ getSequence: sequence }) };
    },
  };
};
`;

let folder: string;
let modulePath: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-bench-peer-'));
  modulePath = join(folder, 'index.mjs');
  writeFileSync(modulePath, fakeModule);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const settings: PeerSettings = { modelPath: 'model.gguf', contextSizes: [64, 64], threads: 1, flashAttention: false };

async function withPeer(use: (peer: Peer) => Promise<void>): Promise<void> {
  const peer = await startPeer(modulePath, settings);
  try {
    await use(peer);
  } finally {
    await peer.dispose();
  }
}

describe('a peer in its own process', () => {
  test('decodes from the context, repeatedly with the same result', () =>
    withPeer(async (peer) => {
      await peer.setContext(0, [1, 2]);
      for (let round = 0; round < 2; round++) {
        const { tokens, timeMs } = await peer.decode(0, 3, 3);
        expect(tokens).toEqual([6, 12, 24]); // 1 + 2 + 3, then each time twice as much
        expect(timeMs).toBeGreaterThanOrEqual(0);
      }
      expect(peer.cpuMs).toBeGreaterThan(0);
    }));

  test('slots have separate contexts, and a new context replaces the old one', () =>
    withPeer(async (peer) => {
      await peer.setContext(0, [1, 10]);
      await peer.setContext(1, [2, 3]);
      expect((await peer.decode(0, 20, 1)).tokens).toEqual([31]);
      expect((await peer.decode(1, 4, 1)).tokens).toEqual([9]);
      await peer.setContext(0, [1]);
      expect((await peer.decode(0, 20, 1)).tokens).toEqual([21]);
      await expect(peer.decode(2, 1, 1)).rejects.toThrow('no slot 2');
    }));

  test('prefill and log-probabilities start from an empty context', () =>
    withPeer(async (peer) => {
      await peer.setContext(0, [50]);
      expect((await peer.prefill([1, 2, 3])).tokens).toEqual([6]);
      const logprobs = await peer.logprobs([3, 4]);
      expect(logprobs).toHaveLength(100);
      const sum = logprobs.reduce((total, logprob) => total + Math.exp(logprob), 0);
      expect(Math.abs(sum - 1)).toBeLessThan(1e-5); // 100 numbers rounded to float32
      expect(logprobs.indexOf(Math.max(...logprobs))).toBe(7);
      await peer.setContext(0, [5]);
      expect((await peer.decode(0, 6, 1)).tokens).toEqual([11]);
    }));

  test('an error of the peer is reported, and the peer continues', () =>
    withPeer(async (peer) => {
      await expect(peer.prefill([98])).rejects.toThrow('node-llama-cpp: token 98');
      expect((await peer.prefill([1])).tokens).toEqual([1]);
    }));

  test('a crash is an error that names the exit code', () =>
    withPeer(async (peer) => {
      await expect(peer.prefill([99])).rejects.toThrow('ended with 7');
    }));

  test('a model that cannot be loaded', async () => {
    await expect(startPeer(modulePath, { ...settings, modelPath: 'none' })).rejects.toThrow('no such model');
  });
});

test('without npm the error says what to do', async () => {
  const path = process.env['PATH'];
  process.env['PATH'] = folder;
  try {
    await expect(installPeer(folder, () => undefined)).rejects.toThrow(/could not be installed; run without --peer/);
  } finally {
    process.env['PATH'] = path;
  }
});
