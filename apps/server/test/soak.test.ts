/** Hundreds of requests, half of them rejected or aborted, leak no memory. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { sourceArguments, testCoverage } from '@winnow/test-utils';
import { expect, test } from 'vitest';

const [numWarmRounds, numRounds] = testCoverage === 'full' ? [8, 5] : [5, 2];
const numPerRound = 120;

interface Soak {
  /** Heap sizes in bytes. */
  readonly warm: number;
  readonly measured: number;
  readonly leaking: number;
  readonly numSessions: number;
  readonly numUsedBlocks: number;
}

async function soak(): Promise<Soak> {
  const script = fileURLToPath(new URL('./soak-child.ts', import.meta.url));
  const child = spawn(
    process.execPath,
    ['--expose-gc', ...sourceArguments, script, `--warm=${numWarmRounds}`, `--rounds=${numRounds}`],
    { stdio: ['ignore', 'pipe', 'pipe'] },
  );
  const texts = { stdout: '', stderr: '' };
  child.stdout.setEncoding('utf8').on('data', (text: string) => (texts.stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (texts.stderr += text));
  const [code] = (await once(child, 'close')) as [number | null];
  expect({ code, stderr: texts.stderr }).toEqual({ code: 0, stderr: '' });
  return JSON.parse(texts.stdout) as Soak;
}

test(`${numPerRound * numRounds} requests leave no session, no block and no heap behind`, async () => {
  const { warm, measured, leaking, numSessions, numUsedBlocks } = await soak();
  expect({ numSessions, numUsedBlocks }).toEqual({ numSessions: 0, numUsedBlocks: 0 });
  // The first rounds fill one-time state: compiled code, connections, the prefix cache. After that a request that
  // leaks retains at least its request and response objects, which take more than 2 KiB with their headers. The bound is
  // half of that per request.
  const bound = numRounds * numPerRound * 1024;
  expect(measured - warm).toBeLessThan(bound);
  expect(leaking - measured).toBeGreaterThan(bound); // requests that leak 2 KiB on purpose
});
