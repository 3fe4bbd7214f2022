/** Generates and saves after every token until the process is killed. Run by saved.test.ts. */
import { demoModelUrl } from '@winnow/demo-model';
import { loadModel } from '../../src/index.js';

const file = process.argv[2] as string;
const model = await loadModel(demoModelUrl, { context: 512, maxSessions: 1 });
const session = model.createSession();
let saved = 0;
const options = { temperature: 1, topK: 0, topP: 1, minP: 0, ignoreEos: true, seed: 12, maxTokens: 400 };
for await (const _token of session.generate('The old man', options)) {
  await session.save(file, { metadata: { saved: ++saved } });
  process.stdout.write(`${saved}\n`);
}
