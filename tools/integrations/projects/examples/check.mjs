import { execFileSync } from 'node:child_process';
import { demoModelUrl } from '@winnow/demo-model';
import { loadModel } from '@winnow/engine';

const fact = 'The code of Alice is 31407.';
/** The commands of the READMEs: arguments, lines of stdin, and what their output contains. */
const examples = {
  'document-search': [['men shipwrecked in a storm'], [], 'stored '],
  'long-document': [[], [], 'The code of Helen is 90216.'],
  'terminal-chat': [
    ['--temperature', '0'],
    [`It rained all day and the sea was gray. ${fact} The boats stayed in the harbor.`, 'What is the code of Alice?'],
    `${fact}\n[91 prompt tokens, 68 cached, 15 generated, `,
  ],
};

const [name] = process.argv.slice(2);
if (name === undefined) {
  const model = await loadModel(demoModelUrl);
  const { text } = await model
    .generate('The old man looked at the sea and', { maxTokens: 20, temperature: 0 })
    .result();
  await model.dispose();
  console.log(JSON.stringify(text));
} else {
  const [flags, lines, expected] = examples[name];
  const input = lines.map((line) => `${line}\n`).join('');
  const output = execFileSync(process.execPath, [`examples/${name}/main.ts`, ...flags], { input, encoding: 'utf8' });
  if (!output.includes(expected)) throw new Error(`expected ${JSON.stringify(expected)} in:\n${output}`);
}
