/** Tools of the page: a scripted model, and a real MCP server. */
import { pageUrl } from '@winnow/playground';
import { createServer, type ServedModel } from '@winnow/server';
import type { Browser } from 'playwright-core';
import { afterAll, afterEach, describe, expect, test } from 'vitest';
import { missingChromium, suiteName } from '../support/chromium.js';
import { connectChromium } from '../support/shared-chromium.js';
import { startMcpServer, type TestMcpServer } from './mcp-server.js';
import { accessibilityViolations, openPlayground, withSettings, type OpenedPage } from './opened-page.js';
import { bodyOf, chunk, oneModel, sendJson, serveSite, type Handler, type Site } from './site-server.js';

interface Body {
  readonly messages: readonly { readonly role: string; readonly content: string }[];
  readonly tools?: readonly { readonly function: { readonly name: string } }[];
}

let browser: Browser | undefined;
let mcp: TestMcpServer;
let site: Site | undefined;
let opened: OpenedPage;
let bodies: Body[] = [];

afterEach(async () => {
  await opened?.close();
  await site?.close();
  await mcp?.close();
});

afterAll(() => browser?.close());

const functions = JSON.stringify([{ name: 'guess', parameters: { type: 'object' } }]);

type Call = readonly [name: string, values: string];

/** A chunk of a stream with these fields of a delta. */
function delta(fields: object, reason: string | null = null): string {
  return `data: ${JSON.stringify({ choices: [{ delta: fields, finish_reason: reason }] })}\n\n`;
}

/** An answer after some reasoning that ends with these calls, whose arguments arrive in two pieces. */
function calling(...calls: readonly Call[]): string {
  const chunks = calls.flatMap(([name, values], index) => [
    delta({ tool_calls: [{ index, id: `c${index}`, type: 'function', function: { name, arguments: '' } }] }),
    delta({ tool_calls: [{ index, function: { arguments: values.slice(0, 3) } }] }),
    delta({ tool_calls: [{ index, function: { arguments: values.slice(3) } }] }),
  ]);
  return [delta({ reasoning_content: 'I need a tool' }), ...chunks, delta({}, 'tool_calls')].join('');
}

const saying = (text: string): string => `${chunk(text)}${chunk('', 'stop')}`;

/** What a real server answers where a schema cannot be enforced. */
const applyTemplate: Handler = async (request, response) => {
  const { tools = [] } = (await bodyOf(request)) as Body;
  if (tools[0]?.function.name !== 'odd') return sendJson(response, { prompt: '', tokens: [] });
  response.writeHead(400, { 'content-type': 'application/json' });
  response.end(JSON.stringify({ error: { message: 'the schema cannot be enforced' } }));
};

interface Opening {
  readonly answers: readonly string[];
  readonly token?: string;
  /** Whether the policy allows the origin of the MCP server. */
  readonly isAllowed?: boolean;
  readonly settings?: object;
}

/** Opens the page with a server in its list; the last answer is given again and again. */
async function open({ answers, token, isAllowed = true, settings }: Opening): Promise<void> {
  browser ??= await connectChromium();
  mcp = await startMcpServer({ token });
  bodies = [];
  const chat: Handler = async (request, response) => {
    const answer = answers[Math.min(bodies.push((await bodyOf(request)) as Body), answers.length) - 1];
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.end(`${answer}data: [DONE]\n\n`);
  };
  const handlers = {
    'GET /v1/models': oneModel,
    'POST /v1/chat/completions': chat,
    'POST /apply-template': applyTemplate,
  };
  site = await serveSite({ folder: pageUrl, headers: await pageHeaders(isAllowed ? [mcp.origin] : []), handlers });
  const stored = { mcpServers: [{ url: mcp.url, isOn: true }], functions, ...settings };
  opened = await openPlayground(browser, site.url, withSettings(site.url, stored));
}

/** What a real server sends with the page. */
async function pageHeaders(pageOrigins: readonly string[]): Promise<Readonly<Record<string, string>>> {
  const model = {} as ServedModel['model'];
  await using server = await createServer({ models: [{ id: 'none', model }], page: pageUrl, pageOrigins });
  const response = await fetch(await server.listen({ port: 0 }), { headers: { accept: 'text/html' } });
  await response.text();
  return { 'content-security-policy': response.headers.get('content-security-policy') ?? '' };
}

const dialog = (name: RegExp) => opened.page.getByRole('dialog', { name });
const button = (name: string) => opened.page.getByRole('button', { name, exact: true });
const results = (body: Body | undefined): string[] =>
  (body?.messages ?? []).filter(({ role }) => role === 'tool').map(({ content }) => content);

/** After a reload the calls are there, and another answer takes the place of those that led to the last one. */
async function expectRestored(): Promise<void> {
  const { page } = opened;
  await page.reload();
  await page.getByText('weather: It rains.').click();
  expect(await accessibilityViolations(page)).toEqual([]);
  await button('Regenerate').click();
  await opened.answer('It rains in Ulm.').waitFor();
  await opened.answered();
  expect([bodies[2]?.messages.length, await page.locator('.message').count()]).toEqual([1, 2]);
}

describe.skipIf(missingChromium !== undefined)(suiteName('calls of tools'), () => {
  test('each needs consent, shows everything, and the model reads results and refusals; functions are answered by the user', async () => {
    const hidden = '{"text":"\\u001b[2J\\u202eUlm\\u200b"}';
    await open({
      answers: [
        calling(['weather', '{"city":"Ulm"}'], ['note', hidden], ['guess', '{"n":1}'], ['fail', '{}'], ['none', '{}']),
        saying('It rains in Ulm.'),
      ],
    });
    const { page } = opened;
    await opened.ask('How is the weather?');
    await dialog(/Call weather/)
      .getByText('of the server "demo"')
      .waitFor();
    // what was typed before the question does not answer it
    await page.keyboard.press('Enter');
    await page.keyboard.press('y');
    expect([await dialog(/Call weather/).count(), mcp.log]).toEqual([1, []]);
    expect(await accessibilityViolations(page)).toEqual([]);
    await page.keyboard.press('Tab');
    expect(await button('Call it').evaluate((element) => element === document.activeElement)).toBe(true);
    await page.keyboard.press('Enter');
    const text = await dialog(/Call note/)
      .getByRole('region', { name: 'Arguments' })
      .textContent();
    expect(text).toBe('{\n  "text": "\\u001b[2J\\u{202e}Ulm\\u{200b}"\n}');
    await page.keyboard.press('Escape');
    await dialog(/What does guess return/)
      .getByLabel('Result')
      .fill('42');
    expect(await accessibilityViolations(page)).toEqual([]);
    await button('Return it').click();
    await dialog(/Call fail/).waitFor();
    await button('Call it').click();
    await opened.answer('It rains in Ulm.').waitFor();
    await opened.answered();
    expect(mcp.log).toEqual(['weather {"city":"Ulm"}', 'fail {}']);
    expect(bodies[0]?.tools?.map((tool) => tool.function.name)).toEqual(['guess', 'weather', 'note', 'fail', 'hang']);
    await page.getByText('the tool odd cannot be used: the schema cannot be enforced').waitFor();
    expect(results(bodies[1])).toEqual([
      'It rains.',
      'Error: the user did not agree to this call.',
      '42',
      'Error: no such city',
      'Error: there is no tool none.',
    ]);
    expect(bodies[1]?.messages[1]).toMatchObject({
      role: 'assistant',
      reasoning_content: 'I need a tool',
      tool_calls: [{ id: 'c0', function: { name: 'weather', arguments: '{"city":"Ulm"}' } }, {}, {}, {}, {}],
    });
    await expectRestored();
    // the browser itself reports the 400
    expect(opened.complaints.filter((text) => !text.includes('400'))).toEqual([]);
    expect(opened.foreign.filter((url) => !url.startsWith(mcp.origin))).toEqual([]);
  });
});

describe.skipIf(missingChromium !== undefined)(suiteName('calls that end early'), () => {
  test('stopping cancels a call at the server, makes no other, and the conversation goes on', async () => {
    await open({ answers: [calling(['hang', '{}'], ['weather', '{"city":"Bern"}']), saying('Fine.')] });
    const { page } = opened;
    await opened.ask('Hang');
    await dialog(/Call hang/).waitFor();
    await button('Call it').click();
    await expect.poll(() => mcp.log).toEqual(['hang {}']);
    await page.keyboard.press('Escape');
    await opened.answered();
    await expect.poll(() => mcp.log).toEqual(['hang {}', 'cancelled hang']);
    expect((await opened.messages())[1]).toMatch(/hang: not made.*weather: not made/s);
    await opened.ask('Go on');
    await opened.answer('Fine.').waitFor();
    const stopped = 'Error: the user stopped this call.';
    expect(results(bodies[1])).toEqual([stopped, stopped]);
    // the browser itself reports the 400
    expect(opened.complaints.filter((text) => !text.includes('400'))).toEqual([]);
  });

  test('stopping while a question is open makes no call', async () => {
    await open({ answers: [calling(['weather', '{"city":"Ulm"}'])] });
    await opened.ask('Begin');
    await dialog(/Call weather/).waitFor();
    await button('Stop the answer').click();
    await opened.answered();
    expect([await dialog(/Call/).count(), mcp.log, bodies.length]).toEqual([0, [], 1]);
  });

  test('a model that goes on calling is stopped; consent to all calls of a tool is asked for once', async () => {
    await open({ answers: [calling(['weather', '{"city":"Ulm"}'])] });
    await opened.ask('Begin');
    await dialog(/Call weather/).waitFor();
    await button('Always call this tool, until the page is closed').click();
    await opened.page.getByRole('alert').getByText('did not answer after 32 answers with calls').waitFor();
    await opened.answered();
    expect([mcp.log.length, bodies.length]).toEqual([32, 33]);
  });
});

describe.skipIf(missingChromium !== undefined)(suiteName('MCP servers of the page'), () => {
  test('one whose origin the policy does not allow is not contacted, and the error says what would allow it', async () => {
    await open({ answers: [saying('Hello')], isAllowed: false });
    await opened.ask('Begin');
    await opened.page.getByRole('alert').getByText(`winnow serve --page-origin ${mcp.origin} allows it`).waitFor();
    await opened.answered();
    expect([bodies, opened.complaints.some((text) => text.startsWith('policy: connect-src'))]).toEqual([[], true]);
  });

  test('are added by hand; a token that one wants lasts as long as the tab', async () => {
    await open({ answers: [saying('Hello')], token: 'secret', settings: { mcpServers: [], functions: '' } });
    const { page } = opened;
    await button('Tools').click();
    const tools = dialog(/^Tools$/);
    await button('Add the server').click();
    await tools.getByText('Expected a URL with http or https.').waitFor();
    await tools.getByLabel('URL of a server').fill(mcp.url);
    await button('Add the server').click();
    await tools.getByText('requires authorization (HTTP 401)').waitFor();
    expect(await accessibilityViolations(page)).toEqual([]);
    await tools.getByLabel(`Token of ${mcp.url}`).fill('secret');
    await button('Use the token').click();
    await tools.getByText('Connected to demo').waitFor();
    await tools.getByText('5 tools').click();
    await tools.getByText('Weather of a city').waitFor();
    await button('Begin with an example').click();
    await tools.getByLabel(/JSON array of functions/).fill('[{}]');
    await tools.getByText('Function 1: expected a name').waitFor();
    await tools.getByLabel(/JSON array of functions/).fill('');
    expect(await accessibilityViolations(page)).toEqual([]);
    const stored = await page.evaluate(() => [JSON.stringify(localStorage), JSON.stringify(sessionStorage)]);
    expect(stored.map((text) => text.includes('secret'))).toEqual([false, true]);
    await page.keyboard.press('Escape');
    await opened.ask('Begin');
    await opened.answer('Hello').waitFor();
    expect(bodies[0]?.tools?.map((tool) => tool.function.name)).toContain('weather');
    await button('Tools').click();
    await tools.getByRole('switch', { name: mcp.url }).uncheck();
    await page.keyboard.press('Escape');
    await opened.ask('Again');
    await expect.poll(() => bodies.length).toBe(2);
    expect(bodies[1]).not.toHaveProperty('tools');
  });
});
