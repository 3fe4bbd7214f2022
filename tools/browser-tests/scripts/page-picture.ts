/**
 * Draws `docs/images/page.png`: the page beside a server, after a conversation with the demo model. It needs a built
 * workspace: `pnpm build && node tools/browser-tests/scripts/page-picture.ts`.
 */
import { fileURLToPath } from 'node:url';
import { launchChromium } from '@winnow/browser-tests/chromium';
import { demoModelUrl } from '@winnow/demo-model';
import { loadModel } from '@winnow/engine';
import { pageUrl } from '@winnow/playground';
import { createServer } from '@winnow/server';

const target = fileURLToPath(new URL('../../../docs/images/page.png', import.meta.url));
const settings = {
  sampling: { temperature: 0, maxTokens: 40 },
  showsMetrics: true,
};
const questions = ['The code of Alice is 31407. The sea was calm.\n\nWhat is the code of Alice?'];

await using model = await loadModel(demoModelUrl, {
  ...{ maxSessions: 2, kvCache: { whenFull: 'wait' } },
  attention: 'decode=page-topk:page=4,epsilon=0.5,window=8,sinks=4',
  trace: { visitedKeys: true },
});
await using server = await createServer({ models: [{ id: 'winnow-tiny', model, maxSessions: 2 }], page: pageUrl });
const url = await server.listen({ port: 0 });
await using browser = await launchChromium();
const page = await browser.newPage({
  viewport: { width: 1240, height: 640 },
  storageState: {
    cookies: [],
    origins: [{ origin: url, localStorage: [{ name: 'winnow-settings', value: JSON.stringify(settings) }] }],
  },
});
await page.goto(url);
const prompt = page.getByRole('textbox', { name: 'Prompt', exact: true });
for (const [index, question] of questions.entries()) {
  await prompt.fill(question);
  await prompt.press('Enter');
  await page.locator('.facts').nth(index).waitFor();
}
// the live view asks once a second
await page.locator('.live dl').getByText('Generated tokens').waitFor();
await page.waitForTimeout(1500);
await page.screenshot({ path: target });
