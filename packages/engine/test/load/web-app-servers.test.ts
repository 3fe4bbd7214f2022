/** Folders on servers of web apps, which answer with a page for names that they lack, and on servers without ranges. */
import { readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { afterEach, expect, test } from 'vitest';
import { inspectModel, loadModel, openTokenizer } from '../../src/index.js';

const demo = fileURLToPath(new URL('../../../demo-model/src/model/', import.meta.url));
const page = '<!doctype html><html><title>app</title></html>';
const required = ['config.json', 'model.safetensors', 'tokenizer.json'];
let server: Server | undefined;

afterEach(() => {
  server?.closeAllConnections();
  server?.close();
});

/** A server that sends whole files, and a page for every other name. Returns the URL of the folder. */
async function serve(names: readonly string[], typeOfPage: string | undefined): Promise<string> {
  server = createServer((request, response) => {
    const name = (request.url ?? '').replace('/m/', '');
    const content = names.includes(name) ? readFileSync(demo + name) : Buffer.from(page);
    if (!names.includes(name) && typeOfPage !== undefined) response.setHeader('content-type', typeOfPage);
    response.setHeader('content-length', content.length);
    response.end(request.method === 'HEAD' ? undefined : content);
  });
  await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/m/`;
}

const types = [['text/html; charset=utf-8'], ['application/json'], [undefined]] as const;

test.each(types)('pages of type %s in place of optional files are missing files', async (type) => {
  const url = await serve(required, type);
  const { tokenizer } = await openTokenizer(url);
  const local = await openTokenizer(demo);
  expect(tokenizer.encode('Once upon a time')).toEqual(local.tokenizer.encode('Once upon a time'));
  await using model = await loadModel(url, { context: 64 });
  await using same = await loadModel(demo, { context: 64 });
  const settings = { positions: [1] };
  expect(await model.logprobs([5, 9], settings)).toEqual(await same.logprobs([5, 9], settings));
});

test.each(types)('pages of type %s in place of required files are named', async (type) => {
  await expect(inspectModel(await serve([], type))).rejects.toThrow(/config\.json: .*answered with a page of HTML/);
  server?.close();
  const url = await serve(['config.json', 'tokenizer.json'], type);
  await expect(loadModel(url)).rejects.toThrow(/model\.safetensors.*answered with a page of HTML/);
});
