/** A process that disposes of a backend whose workers are still starting, with the sources run by Node itself. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { sourceArguments } from '@winnow/test-utils';
import { expect, test } from 'vitest';

const program = `
const { createWasmBackend } = await import(${JSON.stringify(new URL('../src/index.ts', import.meta.url).href)});
const { createScalarBlock, ProgramBuilder } = await import('@winnow/ops');
const b = new ProgramBuilder({ T: 1 });
b.output('y', b.activation('embedding-lookup', {
  table: b.external('table', 'weights', 'f32', [1, 4]),
  tokens: b.scalar('tokens', ['T']),
}));
const program = b.build();
// the worker starts, or the job begins, or it ends, and the news waits in the event loop while the backend is disposed of
for (const blockedMs of [150, 200, 250, 300, 500]) {
  const backend = await createWasmBackend({ numThreads: 2, maxMemoryBytes: 2 ** 22, maxCallerMs: 0 });
  const table = backend.allocate({ sizeBytes: 16, usage: 'weights', label: 'table' });
  const executable = await backend.prepare(program, { buffers: new Map([['table', table]]) });
  const run = executable.run(createScalarBlock(program.scalars, program.symbols).words);
  const refused = run.then(() => 'ran ', () => 'rejected ');
  for (const end = Date.now() + blockedMs; Date.now() < end; );
  await backend.dispose();
  process.stdout.write(await refused);
}`;

test('a process that disposes of a backend while its workers start exits by itself, and not before', async () => {
  const argv = [...sourceArguments, '--input-type=module', '-e', program];
  const child = spawn(process.execPath, argv, { stdio: ['ignore', 'pipe', 'pipe'], cwd: import.meta.dirname });
  let output = '';
  child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()));
  const [code] = (await once(child, 'close')) as [number | null];
  expect({ code, output }).toEqual({ code: 0, output: 'rejected '.repeat(5) });
});
