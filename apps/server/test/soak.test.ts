/** Memory is flat: hundreds of requests, half of them refused or broken off, leave nothing behind. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

const numRequests = 120;
const numRounds = 5;

interface Soak {
  readonly heaps: readonly number[];
  readonly numSessions: number;
  readonly numUsedBlocks: number;
}

/** Sources import each other as `.js`. */
const resolveSources = `
import { registerHooks } from 'node:module';
registerHooks({
  resolve(specifier, context, next) {
    const isSource = specifier.startsWith('.') && specifier.endsWith('.js') && context.parentURL?.endsWith('.ts');
    return next(isSource ? specifier.slice(0, -3) + '.ts' : specifier, context);
  },
});`;

async function soak(): Promise<Soak> {
  const script = fileURLToPath(new URL('./soak-child.ts', import.meta.url));
  const child = spawn(
    process.execPath,
    [
      '--expose-gc',
      '--no-warnings',
      '--conditions=@winnow/source',
      '--import',
      `data:text/javascript,${encodeURIComponent(resolveSources)}`,
      script,
      `--rounds=${numRounds}`,
      `--requests=${numRequests}`,
    ],
    { stdio: ['ignore', 'pipe', 'pipe'] },
  );
  const texts = { stdout: '', stderr: '' };
  child.stdout.setEncoding('utf8').on('data', (text: string) => (texts.stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (texts.stderr += text));
  const [code] = (await once(child, 'close')) as [number | null];
  expect({ code, stderr: texts.stderr }).toEqual({ code: 0, stderr: '' });
  return JSON.parse(texts.stdout) as Soak;
}

test(`${numRequests * numRounds} requests leave no session, no block and no heap behind`, async () => {
  const { heaps, numSessions, numUsedBlocks } = await soak();
  expect({ numSessions, numUsedBlocks }).toEqual({ numSessions: 0, numUsedBlocks: 0 });
  expect(heaps).toHaveLength(numRounds);
  // The first rounds fill what is made once: compiled code, connections, caches of prefixes. After that a request that kept
  // anything of itself would keep at least its request and its answer: Node's two objects with their headers alone are
  // beyond 2 KiB. Half of that per request is the bound.
  const [before, after] = [heaps[1], heaps.at(-1)] as [number, number];
  expect(after - before).toBeLessThan((numRounds - 2) * numRequests * 1024);
});
