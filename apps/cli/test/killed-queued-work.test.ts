/** `winnow embed --queue` and `winnow eval --queue` with workers that are killed: the results of one process. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import * as engine from '@winnow/engine';
import { openSqliteJobStore } from '@winnow/jobs/node';
import { repoRoot, testCoverage } from '@winnow/test-utils';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { lapseLeases } from './lapse-leases.js';
import { runCli, TestHost } from './run-cli.js';

const program = fileURLToPath(new URL('../dist/main.js', import.meta.url));
const encoder = join(repoRoot, 'packages', 'engine', 'test', 'fixtures', 'arch', 'bert-mean', 'model.gguf');

let folder: string;
let queue: string;
let workers: ChildProcess[] = [];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-killed-'));
  queue = join(folder, 'jobs.db');
});
afterEach(async () => {
  for (const child of workers) {
    if (child.exitCode !== null || child.signalCode !== null) continue;
    child.kill('SIGKILL');
    await once(child, 'exit');
  }
  workers = [];
  rmSync(folder, { recursive: true });
});

function startWorker(...flags: readonly string[]): ChildProcess {
  const argv = ['worker', '--queue', queue, '-t', '1', '-q', ...flags];
  const child = spawn(process.execPath, [program, ...argv], { stdio: ['ignore', 'ignore', 'inherit'] });
  workers.push(child);
  return child;
}

/** Resolves when the only batch of the queue has as many results. */
async function untilDone(numJobs: number): Promise<void> {
  while (!existsSync(queue)) await sleep(10);
  const store = await openSqliteJobStore(queue);
  try {
    for (;;) {
      const [batchId] = await store.batches();
      if (batchId !== undefined && (await store.counts(batchId)).completed >= numJobs) return;
      await sleep(10);
    }
  } finally {
    await store.close();
  }
}

describe.skipIf(process.platform === 'win32')('winnow embed --queue', () => {
  test('has the vectors of one process, also when a worker and the command are killed', async () => {
    const numTexts = testCoverage === 'full' ? 600 : 200; // 64 in each job
    const input = join(folder, 'texts.txt');
    const texts = Array.from(
      { length: numTexts },
      (_, index) => `Line ${index} of the log tells of ${index * 7} boats and a harbour.`,
    );
    writeFileSync(input, texts.join('\r\n'));
    const output = join(folder, 'vectors.npy');
    const argv = ['embed', '--file', input, '--queue', queue, '--npy', '-o', output];
    const command = spawn(process.execPath, [program, ...argv], { stdio: 'ignore' });
    const victim = startWorker('--embedding-model', encoder);
    await untilDone(2);
    command.kill('SIGKILL');
    victim.kill('SIGKILL');
    await Promise.all([command, victim].map((child) => child.exitCode ?? child.signalCode ?? once(child, 'exit')));
    expect(existsSync(output)).toBe(false);
    lapseLeases(queue, victim.pid);
    const host = new TestHost(engine);
    const worked = host.run(['worker', '--queue', queue, '-t', '1', '-q', '--embedding-model', encoder]);
    const { code, stderr } = await runCli(engine, argv);
    host.terminate();
    expect((await worked).code).toBe(0);
    expect([code, stderr]).toEqual([0, `winnow: ${numTexts} of ${numTexts} texts embedded in ${output}\n`]);
    const alone = join(folder, 'alone.npy');
    expect((await runCli(engine, ['embed', encoder, '--file', input, '--npy', '-o', alone, '-t', '1'])).code).toBe(0);
    expect(readFileSync(output).equals(readFileSync(alone))).toBe(true);
    expect(existsSync(join(folder, 'vectors.npy.errors.jsonl'))).toBe(false);
  });
});

describe.skipIf(process.platform === 'win32')('winnow eval --queue', () => {
  const argv = [
    ...['eval', '--tokens', '16', '--attention-tokens', '16', '--parts', 'logits,attention,tasks'],
    ...['--policies', 'streaming:window=8', '--kv-dtypes', 'q8_0'],
    ...['--tasks', 'passkey', '--task-lengths', '64', '--cases', '1', '--json', '-q'],
  ];
  test('has the report of one process, also when a worker is killed', async () => {
    const ended = runCli(engine, [...argv, '--queue', queue]);
    const victim = startWorker();
    await untilDone(1);
    victim.kill('SIGKILL');
    await once(victim, 'exit');
    lapseLeases(queue, victim.pid);
    startWorker('--until-empty');
    const { code, stdout, stderr } = await ended;
    expect([code, stderr]).toEqual([0, '']);
    const alone = await runCli(engine, argv);
    expect(JSON.parse(stdout)).toEqual(JSON.parse(alone.stdout));
  });
});
