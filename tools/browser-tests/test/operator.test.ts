/** The operator's page of a server whose lines a worker elsewhere answers. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { JobStore } from '@winnow/jobs';
import { createFolderBlobStore, openSqliteJobStore } from '@winnow/jobs/node';
import { pageUrl } from '@winnow/playground';
import { createServer, type WinnowServer } from '@winnow/server';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { accessibilityViolations } from './playground/opened-page.js';
import { missingChromium, suiteName } from './support/chromium.js';
import { connectChromium } from './support/shared-chromium.js';

const key = 'secret';
const headers = { authorization: `Bearer ${key}` };

/** Three lines for a model, and two that are none. */
async function createBatch(url: string, jobs: JobStore): Promise<string> {
  const line = (custom_id: string): string =>
    JSON.stringify({ custom_id, method: 'POST', url: '/v1/completions', body: { model: 'small', prompt: 'Once' } });
  const lines = [line('a'), line('b'), line('c'), 'not JSON', line('a')];
  const form = new FormData();
  form.set('purpose', 'batch');
  form.set('file', new Blob([lines.join('\n')]), 'in.jsonl');
  const file = (await (await fetch(`${url}/v1/files`, { method: 'POST', headers, body: form })).json()) as {
    id: string;
  };
  const request = { input_file_id: file.id, endpoint: '/v1/completions', completion_window: '24h' };
  const created = await fetch(`${url}/v1/batches`, {
    method: 'POST',
    headers: { ...headers, 'content-type': 'application/json' },
    body: JSON.stringify(request),
  });
  const { id } = (await created.json()) as { id: string };
  while ((await jobs.counts(id)).waiting < 3) await new Promise((resolve) => setTimeout(resolve, 10));
  return id;
}

describe.skipIf(missingChromium !== undefined)(suiteName("the operator's page"), () => {
  const folder = mkdtempSync(join(tmpdir(), 'winnow-operator-'));
  let browser: Browser;
  let jobs: JobStore;
  let server: WinnowServer;
  let url: string;

  beforeAll(async () => {
    browser = await connectChromium();
    jobs = await openSqliteJobStore(join(folder, 'jobs.db'));
    const batches = { jobs, blobs: createFolderBlobStore(join(folder, 'blobs')), concurrency: 0 };
    server = await createServer({ batches, page: pageUrl, apiKeys: [key] });
    url = await server.listen({ port: 0 });
  });
  afterAll(async () => {
    await browser?.close();
    await server?.close();
    await jobs?.close();
    rmSync(folder, { recursive: true });
  });

  test('asks for the key, and shows queues, workers, batches and failed lines', async () => {
    const id = await createBatch(url, jobs);
    const claim = { worker: '<img src=x onerror="globalThis.hacked = 1">', leaseMs: 600_000, queues: ['small'] };
    const [first] = await jobs.claim({ ...claim, limit: 2 });
    const page = await browser.newPage();
    const problems: string[] = [];
    page.on('pageerror', (error) => problems.push(String(error)));
    await page.goto(`${url}/operator`);
    await page.getByText('This server needs an API key.').waitFor();
    await page.getByLabel('API key').fill(key);
    await page.getByRole('button', { name: 'Show' }).click();
    await page.getByText('Updated').waitFor();
    const cells = (table: string): Promise<string[]> => page.locator(`#${table} td`).allTextContents();
    expect(await cells('queues')).toEqual(['small', '1', '2', `${claim.worker} (2)`]);
    expect(await cells('batches')).toEqual([id, 'in_progress', '0 of 5', '2', '2', expect.any(String), '']);
    expect(await cells('failures')).toEqual([
      ...[id, '4', 'invalid_json_line', expect.stringContaining('expected JSON')],
      ...[id, '5', 'duplicate_custom_id', expect.stringContaining("'a' is the id of an earlier line")],
    ]);
    await jobs.complete(first as never, '{}');
    await page.getByText('1 of 5').waitFor();
    expect(await page.evaluate(() => (globalThis as { hacked?: number }).hacked)).toBe(undefined);
    expect(await accessibilityViolations(page)).toEqual([]);
    expect(problems).toEqual([]);
    await page.close();
  });
});
