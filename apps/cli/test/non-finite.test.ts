/** A copy of the demo model with one weight that is not a number: every command that computes says which. */
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { demoModelUrl } from '@winnow/demo-model';
import * as engine from '@winnow/engine';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { runCli } from './run-cli.js';

const tensor = 'model.layers.1.mlp.down_proj.weight';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-non-finite-'));
  cpSync(fileURLToPath(new URL('.', demoModelUrl)), folder, { recursive: true });
  const path = join(folder, 'model.safetensors');
  const bytes = readFileSync(path);
  const headerBytes = Number(bytes.readBigUInt64LE(0));
  const header = JSON.parse(bytes.toString('utf8', 8, 8 + headerBytes)) as Record<string, { data_offsets: number[] }>;
  bytes.writeUInt16LE(0x7e00, 8 + headerBytes + header[tensor]!.data_offsets[0]! + 20); // NaN in f16
  writeFileSync(path, bytes);
});
afterAll(() => rmSync(folder, { recursive: true }));

test.each([
  ['run', '-p', 'Once upon a time', '-n', '2'],
  ['logits', '--tokens', '1,2,3'],
  ['embed', '--pooling', 'mean', '-p', 'Once'],
  ['eval', '--parts', 'logits', '--policies', 'sparq:topk=8', '--tokens', '24', '-q'],
])('winnow %s', async (command, ...flags) => {
  const { code, stdout, stderr } = await runCli(engine, [command, folder, ...flags]);
  expect([code, stdout]).toEqual([3, '']);
  expect(stderr).toContain(`expected finite values, got NaN; the first tensor with such a value is ${tensor} (NaN)\n`);
});
