import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request as httpRequest, type IncomingHttpHeaders } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ServedModel } from '../src/index.js';
import { startServer, type DemoServer } from './demo-server.js';

const root = mkdtempSync(join(tmpdir(), 'winnow-page-'));
const page = pathToFileURL(join(root, 'page'));
const html = '<!doctype html><title>Page</title>';
const models: ServedModel[] = [{ id: 'none', model: {} as ServedModel['model'] }];
let server: DemoServer;

beforeAll(async () => {
  mkdirSync(join(root, 'page', 'assets'), { recursive: true });
  writeFileSync(join(root, 'page', 'index.html'), html);
  writeFileSync(join(root, 'page', 'secret.txt'), 'secret');
  writeFileSync(join(root, 'page', 'assets', 'main-abc.js'), 'export {};');
  server = await startServer({ models, page, apiKeys: ['key'] });
});

afterAll(async () => {
  await server.close();
  rmSync(root, { recursive: true });
});

/** Sends the path as it is, which `fetch` would normalize. */
function get(
  path: string,
  headers: Readonly<Record<string, string>> = {},
): Promise<{ status: number | undefined; headers: IncomingHttpHeaders; body: string }> {
  const { port } = new URL(server.url);
  return new Promise((resolve, reject) => {
    httpRequest({ port, host: '127.0.0.1', path, headers }, (response) => {
      let body = '';
      response.setEncoding('utf8').on('data', (text: string) => (body += text));
      response.on('end', () => resolve({ status: response.statusCode, headers: response.headers, body }));
    })
      .on('error', reject)
      .end();
  });
}

const fromBrowser = { accept: 'text/html,application/xhtml+xml,*/*;q=0.8' };

describe('the page', () => {
  test('needs no key, may be shown by no other site, and allows no inline code', async () => {
    const { status, headers, body } = await get('/', fromBrowser);
    expect([status, body]).toEqual([200, html]);
    expect(headers).toMatchObject({
      'content-type': 'text/html; charset=utf-8',
      'cache-control': 'no-cache',
      vary: 'accept',
      'x-content-type-options': 'nosniff',
      'x-frame-options': 'DENY',
      'referrer-policy': 'no-referrer',
    });
    const policy = headers['content-security-policy'] ?? '';
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("frame-ancestors 'none'");
    expect(policy).not.toContain('unsafe');
    expect((await get('/v1/models')).status).toBe(401);
  });

  test('is sent again only when it has changed', async () => {
    const { etag = '' } = (await get('/', fromBrowser)).headers;
    const again = await get('/', { ...fromBrowser, 'if-none-match': etag });
    expect([again.status, again.body]).toEqual([304, '']);
  });

  test('assets have their type and are cached for good, since their names contain a hash', async () => {
    const { status, headers, body } = await get('/assets/main-abc.js');
    expect([status, body]).toEqual([200, 'export {};']);
    expect(headers).toMatchObject({
      'content-type': 'text/javascript; charset=utf-8',
      'cache-control': 'public, max-age=31536000, immutable',
      'x-content-type-options': 'nosniff',
    });
  });

  test.each([
    '/assets/none.js',
    '/assets/..%2findex.html',
    '/assets/../secret.txt',
    '/assets/%2e%2e/secret.txt',
    '/secret.txt',
  ])('%s is no file of the page', async (path) => {
    const { status, body } = await get(path, { authorization: 'Bearer key' });
    expect(status).toBe(404);
    expect(body).toContain('unknown_url');
  });

  test('clients of the API get at / what they got without a page', async () => {
    const without = await startServer({ models });
    const expected = await (await fetch(without.url, { headers: { accept: 'application/json' } })).json();
    await without.close();
    for (const accept of ['application/json', '*/*']) {
      const { status, body } = await get('/', { accept, authorization: 'Bearer key' });
      expect([status, JSON.parse(body)]).toEqual([404, expected]);
    }
  });
});

test('may contact the origins that are given, and nothing else can extend the policy', async () => {
  const pageOrigins = ['https://mcp.example', 'http://127.0.0.1:7000'];
  const other = await startServer({ models, page, pageOrigins });
  const response = await fetch(other.url, { headers: fromBrowser });
  await other.close();
  const policy = response.headers.get('content-security-policy')?.split('; ') ?? [];
  expect(policy.filter((directive) => directive.startsWith('connect-src'))).toEqual([
    "connect-src 'self' https://mcp.example http://127.0.0.1:7000",
  ]);
  for (const wrong of ['https://a.example/mcp', 'https://a.example; script-src *', '*', 'data:', 'a.example']) {
    await expect(startServer({ models, page, pageOrigins: [wrong] })).rejects.toThrow(
      /^pageOrigins: expected an origin/,
    );
  }
});

test('a folder without a page is an error that names the option', async () => {
  await expect(startServer({ models, page: pathToFileURL(root) })).rejects.toThrow(
    /^page: expected the folder of a built page/,
  );
});
