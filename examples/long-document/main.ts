/**
 * Questions about a long text that is read once, with sparse attention:
 * node main.ts QUESTION... [--file text.txt] [--attention POLICY] [--model FILE_OR_FOLDER]
 */
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { demoModelUrl } from '@winnow/demo-model';
import { loadModel } from '@winnow/engine';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    file: { type: 'string', default: fileURLToPath(new URL('harbor-log.txt', import.meta.url)) },
    // The text: 64 tokens back, landmarks of what is before, and strides. Answers: the 128 keys that matter most.
    attention: { type: 'string', default: 'prefill=subquadratic:window=64;decode=sparq:rank=16,topk=128' },
    model: { type: 'string' },
    context: { type: 'string', default: '2048' },
  },
});

// A closed pipe, such as that of `| head`, ends the program.
process.stdout.on('error', () => process.exit());

const questions = positionals.length > 0 ? positionals : ['What is the code of Alice?', 'What is the code of Helen?'];

const text = await readFile(values.file, 'utf8');
const model = await loadModel(values.model ?? demoModelUrl, {
  attention: values.attention,
  context: Number(values.context),
});
console.log(`${model.name}, ${model.attention}`);
const session = model.createSession();

for (const question of questions) {
  // The text comes first, so that it stays in the session's cache for the next question.
  const content = `${text.trim()}\n\n${question}`;
  const generation = session.generate([{ role: 'user', content }], { maxTokens: 64, temperature: 0 });
  const { text: answer, promptTokens, cachedTokens, timings } = await generation.result();
  const seconds = (timings.promptMs / 1000).toFixed(2);
  console.log(`\n${question}\n${answer.trim()}`);
  console.log(`[${promptTokens} tokens, ${cachedTokens} of them known, the others read in ${seconds} s]`);
}
await model.dispose();
