/** The page with a scripted server: streams, aborts, long histories and hostile answers. */
import { pageUrl } from '@winnow/playground';
import { createServer, type ServedModel } from '@winnow/server';
import { testCoverage } from '@winnow/test-utils';
import type { Browser } from 'playwright-core';
import { afterAll, afterEach, describe, expect, test } from 'vitest';
import { missingChromium, suiteName } from '../support/chromium.js';
import { connectChromium } from '../support/shared-chromium.js';
import { accessibilityViolations, openPlayground, withSettings, type OpenedPage } from './opened-page.js';
import { answering, bodyOf, chunk, oneModel, serveSite, type Handler, type Site } from './site-server.js';

const hostile = `<script>globalThis.hacked = 1</script><img src=x onerror="globalThis.hacked = 1">

<iframe src="https://evil.example"></iframe> <style>* { display: none }</style>

[a](javascript:globalThis.hacked=1) [b](data:text/html,<script>1</script>) [c](vbscript:x) [d](https://safe.example)
![picture](https://evil.example/pixel.png) <https://auto.example> <javascript:alert(1)>

[e]: javascript:alert(1)
[e] **bold** \`<b>\`

\`\`\`html
<script>globalThis.hacked = 1</script>
\`\`\`
`;

/** Rows that would be 60,000 elements. */
const hugeTable = `| a | b |\n| - | - |\n${'| <b>1</b> | [x](javascript:1) |\n'.repeat(20_000)}`;

let browser: Browser | undefined;
let headers: Readonly<Record<string, string>>;
let site: Site | undefined;
let opened: OpenedPage;

afterEach(async () => {
  await opened?.close();
  await site?.close();
});

afterAll(() => browser?.close());

async function open(chat: Handler, settings = {}, options = {}): Promise<void> {
  browser ??= await connectChromium();
  headers ??= await pageHeaders();
  const handlers = { 'GET /v1/models': oneModel, 'POST /v1/chat/completions': chat };
  site = await serveSite({ folder: pageUrl, headers, handlers });
  opened = await openPlayground(browser, site.url, { ...withSettings(site.url, settings), ...options });
}

describe.skipIf(missingChromium !== undefined)(suiteName('answers of a scripted server'), () => {
  test('shows an answer while it is written; Escape ends the request and keeps the text; an error can be tried again', async () => {
    const ended = Promise.withResolvers<void>();
    let body: unknown;
    const answers: Handler[] = [
      (_request, response) => {
        response.on('close', () => ended.resolve());
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.write(`${chunk('The first ')}: keep-alive\n\n${chunk('words')}`);
      },
      (_request, response) => {
        response.writeHead(500, { 'content-type': 'application/json' });
        response.end(JSON.stringify({ error: { message: 'out of luck' } }));
      },
      reasonedAnswer((sent) => {
        body = sent;
      }),
    ];
    await open((request, response) => answers.shift()?.(request, response), {
      systemPrompt: 'Be brief.',
      sampling: { topK: 7 },
      jsonSchema: '{ "type": "object" }',
    });
    await opened.page.getByText('scripted answers, after it has been loaded').waitFor();
    await opened.ask('Begin');
    await opened.answer('The first words').waitFor();
    expect(await opened.page.locator('.messages').getAttribute('aria-busy')).toBe('true');
    await opened.page.keyboard.press('Escape');
    await ended.promise;
    await opened.answered();
    expect((await opened.messages())[1]).toMatch(/The first words.*stopped/s);
    expect(opened.complaints).toEqual([]);
    await opened.ask('Go on');
    await opened.page.getByRole('alert').getByText('out of luck').waitFor();
    await opened.page.getByRole('button', { name: 'Regenerate' }).click();
    await opened.answer('Again').waitFor();
    expect(await opened.page.getByRole('alert').count()).toBe(0);
    expect(await opened.page.getByText('Let me think').isVisible()).toBe(false);
    expect(body).toMatchObject({
      messages: [
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: 'Begin' },
        { role: 'assistant', content: 'The first words' },
        { role: 'user', content: 'Go on' },
      ],
      top_k: 7,
      response_format: { type: 'json_schema', json_schema: { schema: { type: 'object' } } },
    });
  });
});

describe.skipIf(missingChromium !== undefined)(suiteName('interrupted answers'), () => {
  test.runIf(testCoverage === 'full')('a reload in the middle of an answer keeps what was written', async () => {
    await open((_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(chunk('Half an answer'));
    });
    await opened.ask('Begin');
    await opened.answer('Half an answer').waitFor();
    // an answer is stored once a second
    while (!(await opened.page.evaluate(storedText)).includes('Half an answer')) await opened.page.waitForTimeout(50);
    await opened.page.reload();
    await opened.answer('Half an answer').waitFor();
    expect((await opened.messages())[1]).toContain('stopped');
  });
});

describe.skipIf(missingChromium !== undefined)(suiteName('failures'), () => {
  test('a failed answer is no message of the next prompt, and a full disk is reported while the conversation continues', async () => {
    const bodies: unknown[] = [];
    const answers: Handler[] = [
      (_request, response) => {
        response.writeHead(500, { 'content-type': 'application/json' });
        response.end(JSON.stringify({ error: { message: 'out of luck' } }));
      },
      answering('Here it is'),
    ];
    await open(async (request, response) => {
      bodies.push(await bodyOf(request));
      answers.shift()?.(request, response);
    });
    const { page } = opened;
    const alerts = page.getByRole('alert');
    const { origin } = new URL(page.url());
    const devTools = await page.context().newCDPSession(page);
    await devTools.send('Storage.overrideQuotaForOrigin', { origin, quotaSize: 1 });
    await opened.ask('Begin');
    await alerts.getByText('out of luck').waitFor();
    await opened.ask('Go on');
    await opened.answer('Here it is').waitFor();
    await opened.answered();
    await alerts.getByText('does not store conversations').waitFor();
    expect(bodies[1]).toMatchObject({ messages: [{ role: 'user', content: 'Begin\n\nGo on' }] });
    // the browser itself reports the 500
    expect(opened.complaints.filter((text) => !text.includes('500'))).toEqual([]);
  });
});

describe.skipIf(missingChromium !== undefined)(suiteName('attachments'), () => {
  test('text files are part of the message; broken images, other bytes and too long texts are refused with a reason', async () => {
    const bodies: unknown[] = [];
    await open(async (request, response) => {
      bodies.push(await bodyOf(request));
      answering('Read')(request, response);
    });
    const { page } = opened;
    const files = page.getByLabel('Attach text files');
    const refusal = page.locator('.attached').getByRole('alert');
    const file = (name: string, mimeType: string, content: string | Uint8Array): object => ({
      ...{ name, mimeType, buffer: Buffer.from(content) },
    });
    await files.setInputFiles([
      file('cat.png', 'image/png', 'x'),
      file('data.bin', '', Uint8Array.of(0xff, 0xfe)),
      file('long.txt', 'text/plain', 'a'.repeat(4_000_001)),
    ] as never);
    for (const reason of [
      'cat.png: format: expected a PNG, JPEG or WebP file',
      'data.bin: expected text in UTF-8',
      'long.txt: expected a text of at most 4 MB',
    ]) {
      await refusal.getByText(reason).waitFor();
    }
    await files.setInputFiles([
      file('<b>.md', 'text/markdown', '# Title\n```\ncode\n```'),
      file('b.txt', '', 'B'),
    ] as never);
    await page.getByText('<b>.md, 20 B').click();
    await page.getByRole('button', { name: 'Remove b.txt' }).click();
    expect(await accessibilityViolations(page)).toEqual([]);
    await opened.ask('Sum it up');
    await opened.answered();
    const content = '<b>.md:\n````\n# Title\n```\ncode\n```\n````\n\nSum it up';
    expect(bodies).toMatchObject([{ messages: [{ role: 'user', content }] }]);
    await page.reload();
    await page.locator('.message.user').getByText('<b>.md, 20 B').waitFor();
    await page.getByRole('button', { name: 'Edit' }).click();
    await page.getByLabel('Edited message').fill('Again');
    await page.getByRole('button', { name: 'Send again' }).click();
    await opened.answer('Read').waitFor();
    await opened.answered();
    expect(bodies[1]).toMatchObject({ messages: [{ content: content.replace('Sum it up', 'Again') }] });
    expect([opened.complaints, opened.foreign]).toEqual([[], []]);
  });
});

describe.skipIf(missingChromium !== undefined)(suiteName('untrusted answers'), () => {
  test('hostile answers stay text, and a huge table does, too', async () => {
    const answers = [hostile, hugeTable];
    await open((request, response) => answering(answers.shift() ?? '')(request, response));
    await opened.ask('Begin');
    await opened.answered();
    await opened.page.locator('figure.code .hljs-tag').first().waitFor();
    const found = await opened.page.locator('.markdown').evaluate((element) => ({
      forbidden: element.querySelectorAll('script, img, iframe, style, link, object, [style], [onerror], [id]').length,
      links: [...element.querySelectorAll('a')].map(({ href, rel }) => [href, rel]),
      bold: element.querySelector('strong')?.textContent,
      hacked: 'hacked' in globalThis,
    }));
    const rel = 'noopener noreferrer nofollow';
    expect(found).toEqual({
      forbidden: 0,
      links: [
        ['https://evil.example/', rel],
        ['https://safe.example/', rel],
        ['https://evil.example/pixel.png', rel],
        ['https://auto.example/', rel],
      ],
      bold: 'bold',
      hacked: false,
    });
    expect(await accessibilityViolations(opened.page)).toEqual([]);
    await opened.ask('Go on');
    await opened.page.getByText('Shown as plain text').waitFor();
    await opened.answered();
    expect(await opened.page.locator('.message').last().locator('*').count()).toBeLessThan(30);
    expect([opened.complaints, opened.foreign]).toEqual([[], []]);
  });
});

describe.skipIf(missingChromium !== undefined)(suiteName('long histories and small screens'), () => {
  test('in a history of 1,000 messages, an answer draws only itself', async () => {
    await open(answering('Number 1001'));
    const { page } = opened;
    await page.evaluate(storeConversation, 1000);
    await page.reload();
    await page.locator('.message').nth(999).waitFor();
    expect(await page.locator('.message').count()).toBe(1000);
    const isDrawn = await page
      .locator('.message p')
      .first()
      .evaluate((element) => element.checkVisibility({ contentVisibilityAuto: true }));
    expect(isDrawn).toBe(false);
    await page.evaluate(observeMessages);
    await opened.ask('Question 1001');
    await opened.answer('Number 1001').waitFor();
    await opened.answered();
    // the last old message loses its button; question and answer are new
    expect(await page.evaluate(() => globalThis.changedMessages?.size)).toBeLessThanOrEqual(3);
  });

  test.runIf(testCoverage === 'full')(
    'on a phone, nothing is wider than the screen, and the list of conversations opens over the page',
    async () => {
      await open(
        answering('A long_word_'.repeat(40)),
        {},
        { viewport: { width: 360, height: 640 }, colorScheme: 'dark' },
      );
      await opened.ask('Begin');
      await opened.answered();
      const { page } = opened;
      const [contentWidth = 0, width = 0] = await page.evaluate(() => [
        document.documentElement.scrollWidth,
        innerWidth,
      ]);
      expect(contentWidth).toBeLessThanOrEqual(width);
      expect(await accessibilityViolations(page)).toEqual([]);
      await page.getByRole('button', { name: 'Conversations' }).click();
      await page.getByRole('button', { name: 'New conversation' }).click();
      expect(await page.locator('.message').count()).toBe(0);
      await page.getByRole('button', { name: 'Settings' }).click();
      expect(await accessibilityViolations(page)).toEqual([]);
    },
  );
});

/** Answers with reasoning. @param onBody gets what the page asked for */
function reasonedAnswer(onBody: (body: unknown) => void): Handler {
  return async (request, response) => {
    onBody(await bodyOf(request));
    const reasoning = { choices: [{ delta: { reasoning_content: 'Let me think' }, finish_reason: null }] };
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.end(`data: ${JSON.stringify(reasoning)}\n\n${chunk('Again')}${chunk('', 'stop')}data: [DONE]\n\n`);
  };
}

/** What a real server sends with the page: its policy applies here, too. */
async function pageHeaders(): Promise<Readonly<Record<string, string>>> {
  const model = {} as ServedModel['model'];
  await using server = await createServer({ models: [{ id: 'none', model }], page: pageUrl });
  const response = await fetch(await server.listen({ port: 0 }), { headers: { accept: 'text/html' } });
  const policy = response.headers.get('content-security-policy') ?? '';
  expect(policy).toMatch(/^default-src 'none'; script-src 'self'; style-src 'self'; /);
  expect(policy).not.toContain('unsafe');
  await response.text();
  return { 'content-security-policy': policy };
}

declare global {
  // in the page
  var changedMessages: Set<Element> | undefined;
}

/** In the page: notes which messages change. */
function observeMessages(): void {
  const changed = new Set<Element>();
  globalThis.changedMessages = changed;
  new MutationObserver((records) => {
    for (const { target } of records) {
      const message = (target as Element).closest('.message');
      if (message !== null) changed.add(message);
    }
  }).observe(document.querySelector('.messages') as Element, { subtree: true, childList: true });
}

/** In the page: all stored messages as JSON. */
async function storedText(): Promise<string> {
  const request = indexedDB.open('winnow-playground');
  await new Promise((resolve) => (request.onsuccess = resolve));
  const all = request.result.transaction('messages').objectStore('messages').getAll();
  await new Promise((resolve) => (all.onsuccess = resolve));
  request.result.close();
  return JSON.stringify(all.result);
}

/** In the page: fills the database with one conversation. */
async function storeConversation(numMessages: number): Promise<void> {
  const request = indexedDB.open('winnow-playground');
  await new Promise((resolve) => (request.onsuccess = resolve));
  const transaction = request.result.transaction(['conversations', 'messages'], 'readwrite');
  transaction.objectStore('conversations').put({ id: 'long', title: 'A long one', updatedAt: 1 });
  for (let position = 0; position < numMessages; position++) {
    const role = position % 2 === 0 ? 'user' : 'assistant';
    const content = `Message ${position} with **some** text.\n\n- one\n- two\n\n\`code\``;
    const message = { role, content, reasoning: '', state: 'done' };
    transaction.objectStore('messages').put({ conversationId: 'long', position, message });
  }
  await new Promise((resolve) => (transaction.oncomplete = resolve));
  request.result.close();
}
