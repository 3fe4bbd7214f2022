/** `deploy/haproxy/haproxy.cfg` with the real HAProxy in front of two servers; the third is down. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Model } from '@winnow/engine';
import { haproxyProgram, repoRoot, startHaproxy, type Haproxy } from '@winnow/test-utils';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadDemoModel, postJson, startServer, until, type DemoServer } from '../demo-server.js';
import { endless } from '../fake-models.js';

const file = join(repoRoot, 'deploy', 'haproxy', 'haproxy.cfg');

let model: Model;
const servers: DemoServer[] = [];
let proxy: Haproxy;

beforeAll(async () => {
  if (haproxyProgram === undefined) return;
  model = await loadDemoModel();
  for (const id of ['first', 'second']) {
    const models = [
      { id, model },
      { id: 'endless', model: endless(model) },
    ];
    servers.push(await startServer({ models }));
  }
  const addresses = servers.map(({ url }) => new URL(url).host);
  proxy = await startHaproxy((port, folder) =>
    ['10.0.0.11:8080', '10.0.0.12:8080', '10.0.0.13:8080']
      .reduce(
        (text, address, index) => text.replaceAll(address, addresses[index] ?? '127.0.0.1:1'),
        readFileSync(file, 'utf8'),
      )
      .replace('bind *:8080', `bind 127.0.0.1:${port}`)
      .replace('/run/haproxy', folder),
  );
});

afterAll(async () => {
  await proxy?.stop();
  for (const server of servers) await server.close();
  await model?.dispose();
});

/** The server that answers. */
async function askedFor(session?: string): Promise<string> {
  const headers: Record<string, string> = session === undefined ? {} : { 'x-session-id': session };
  const response = await fetch(`${proxy.url}/v1/models`, { headers });
  const { data = [] } = (await response.json()) as { data?: { id: string }[] };
  return data[0]?.id ?? `status ${response.status}`;
}

/** The server that answers four requests of a session, if it is one. */
async function homeOf(session: string): Promise<string | undefined> {
  const asked = new Set<string>();
  for (let request = 0; request < 4; request++) asked.add(await askedFor(session));
  return asked.size === 1 ? [...asked][0] : undefined;
}

describe.skipIf(haproxyProgram === undefined)('with haproxy', () => {
  test('the file is valid, without warnings', () => {
    const { status, stderr } = spawnSync(haproxyProgram ?? '', ['-c', '-f', file], { encoding: 'utf8' });
    expect([status, stderr]).toEqual([0, '']);
  });

  test('requests are shared, and those of a session meet on one server', async () => {
    const all = new Set<string>();
    for (let index = 0; index < 6; index++) all.add(await askedFor());
    expect([...all].toSorted()).toEqual(['first', 'second']);
    const homes = new Set<string>();
    for (const session of 'abcdefghijkl') {
      // sessions move once when the first check of the third server fails, which is late on a busy machine
      const home = (await homeOf(session)) ?? (await homeOf(session));
      expect(home).toBeDefined();
      homes.add(home as string);
    }
    expect([...homes].toSorted()).toEqual(['first', 'second']);
    const answer = await postJson(`${proxy.url}/v1/completions`, {
      model: 'endless',
      prompt: 'The sea',
      max_tokens: 3,
    });
    expect(await answer.json()).toMatchObject({ usage: { completion_tokens: 3 } });
  });

  test('a server that closes gets no new requests, and finishes its stream', async () => {
    const session = 'drain';
    const home = await askedFor(session);
    const closing = servers[home === 'first' ? 0 : 1] as DemoServer;
    const body = { model: 'endless', prompt: 'The sea', max_tokens: 500, stream: true };
    const response = await postJson(`${proxy.url}/v1/completions`, body, { 'x-session-id': session });
    const reader = (response.body as ReadableStream<Uint8Array>).getReader();
    await reader.read();
    const closed = closing.server.close({ graceMs: 60_000 });
    const other = home === 'first' ? 'second' : 'first';
    await until(async () => (await askedFor(session)) === other);
    for (let index = 0; index < 8; index++) expect(await askedFor()).toBe(other);
    let text = '';
    const decoder = new TextDecoder();
    for (let part = await reader.read(); !part.done; part = await reader.read()) text += decoder.decode(part.value);
    expect(text).toMatch(/"finish_reason":"length"[^]*data: \[DONE\]\n\n$/);
    await closed;
  });
});
