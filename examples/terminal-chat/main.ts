/** A chat in the terminal: node main.ts [model], with a GGUF file or a Hugging Face folder instead of the demo model. */
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import { demoModelUrl } from '@winnow/demo-model';
import { loadModel, type ChatMessage } from '@winnow/engine';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    system: { type: 'string' },
    temperature: { type: 'string' },
    'max-tokens': { type: 'string', default: '200' },
  },
});

// A closed pipe, such as that of `| head`, ends the program.
process.stdout.on('error', () => process.exit());

const model = await loadModel(positionals[0] ?? demoModelUrl);
// One session for the whole conversation: what it has in its cache is not computed again.
const session = model.createSession();
const messages: ChatMessage[] = [];
const terminal = createInterface({ input: process.stdin, output: process.stdout });
const prompt = (): boolean => process.stdout.write('you> ');
let answering: AbortController | undefined;

// Ctrl+C ends the answer, or the chat when there is none.
terminal.on('SIGINT', () => (answering === undefined ? terminal.close() : answering.abort()));

async function answer(question: string): Promise<void> {
  messages.push({ role: 'user', content: question });
  const controller = new AbortController();
  answering = controller;
  let text = '';
  try {
    const generation = session.generate(messages, {
      maxTokens: Number(values['max-tokens']),
      signal: controller.signal,
      overflow: 'truncate-middle', // of a conversation that has become too long
      ...(values.temperature === undefined ? {} : { temperature: Number(values.temperature) }),
    });
    for await (const token of generation) {
      process.stdout.write(token.text);
      text += token.text;
    }
    const { promptTokens, cachedTokens, tokens, timings } = await generation.result();
    const speed = Math.round(timings.tokensPerSecond);
    console.log(`\n[${promptTokens} prompt tokens, ${cachedTokens} cached, ${tokens.length} generated, ${speed}/s]`);
  } catch (error) {
    if (!controller.signal.aborted) throw error;
    console.log('\n[stopped]');
  } finally {
    answering = undefined;
  }
  messages.push({ role: 'assistant', content: text });
}

function reset(): void {
  messages.length = 0;
  if (values.system !== undefined) messages.push({ role: 'system', content: values.system });
}

console.log(`${model.name}, ${model.contextSize} tokens of context. /reset starts anew, /quit ends.`);
reset();
prompt();
for await (const line of terminal) {
  const question = line.trim();
  if (question === '/quit') break;
  if (question === '/reset') reset();
  else if (question !== '') await answer(question);
  prompt();
}
terminal.close();
await model.dispose();
