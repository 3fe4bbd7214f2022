/** How long untrusted texts, schemas and templates block the event loop. */
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { demoModelUrl } from '@winnow/demo-model';
import { loadModel, openTokenizer, prepareChat, type ChatMessage, type Model } from '@winnow/engine';
import type { JsonSchema } from '@winnow/grammar';
import { FormatError } from '@winnow/tensor';
import { milliseconds, type Figure } from '../harness/figure.js';
import { measure, type Contender } from '../harness/measure.js';
import { measureOptions, type Suite } from '../harness/suite.js';

const suite = 'event-loop';
/** Maximum time that any work may block the event loop. */
const boundMs = 50;

/** @param count number of iterations per loop; templates with many exceed their budget */
function templatesOf(count: number): Readonly<Record<string, string>> {
  const loops = `{% for a in range(${count}) %}{% for b in range(${count}) %}{{ a }}{% endfor %}{% endfor %}`;
  const longer = "{% set n.s = n.s + n.s %}{{ n.s | replace('a', 'bc') | length }}";
  return {
    'a conversation of 10,000 messages': '{% for m in messages %}{{ m.role ~ m.content | trim }}{% endfor %}',
    'a template of nested loops': loops,
    'a template of nested loops in a macro': `{% macro m() %}${loops}{% endmacro %}{{ m() }}`,
    'a template of long texts': `{% set n = namespace(s='ab') %}{% for a in range(${count}) %}${longer}{% endfor %}`,
  };
}

export const eventLoop: Suite = {
  name: suite,
  summary: 'longest delay of the event loop while texts, schemas and templates are processed',
  async *run({ options }) {
    const folder = join(options.modelsFolder, 'event-loop');
    const model = await loadModel(demoModelUrl, { threads: 1 });
    try {
      const timings = await measure(await contendersOf(model, folder, options.quick), measureOptions(options, 9));
      for (const [name, timing] of Object.entries(timings)) {
        const rate = milliseconds(timing);
        yield {
          suite,
          case: name,
          ...rate,
          unit: 'ms',
          ratio: rate.value / boundMs,
          ratioOf: `${boundMs} ms`,
        } as Figure;
      }
    } finally {
      await model.dispose();
      await rm(folder, { recursive: true, force: true });
    }
  },
};

async function contendersOf(model: Model, folder: string, quick: boolean): Promise<Record<string, Contender>> {
  const numBytes = quick ? 1 << 12 : 1 << 22;
  const numMessages = quick ? 10 : 10_000;
  const messages: readonly ChatMessage[] = Array.from({ length: numMessages }, (_, index) => ({
    role: index % 2 === 0 ? 'user' : 'assistant',
    content: `message ${index}`,
  }));
  let numSchemas = 0;
  const contenders: Record<string, Contender> = {
    'a timer of 100 ms': delayOf(() => new Promise((resolve) => setTimeout(resolve, quick ? 1 : 100))),
    'a prompt of 4 MB of words': delayOf(() => model.tokenize('Some words, again. '.repeat(numBytes / 19))),
    'a prompt of 4 MB of lines': delayOf(() => model.tokenize('\n'.repeat(numBytes))),
    'a large schema': delayOf(() => {
      const jsonSchema = largeSchema(quick ? 4 : 200, numSchemas++);
      return model.generate('a', { jsonSchema, maxTokens: 1 }).result();
    }),
  };
  for (const [index, [name, source]] of Object.entries(templatesOf(quick ? 5 : 99_999)).entries()) {
    const chatTemplate = await templateOf(source, join(folder, String(index)));
    const chat = { ...model, contextSize: Infinity, chatTemplate };
    contenders[name] = delayOf(async () => {
      try {
        await prepareChat(chat, { messages });
      } catch (error) {
        if (!FormatError.isInstance(error)) throw error; // the template takes too many steps
      }
    });
  }
  return contenders;
}

/** The longest time between two turns of the event loop while the work is done. */
function delayOf(work: () => Promise<unknown>): Contender {
  return {
    async run() {
      let longest = 0;
      let before = performance.now();
      const turn = (): void => {
        const now = performance.now();
        longest = Math.max(longest, now - before);
        before = now;
        pending = setImmediate(turn);
      };
      let pending = setImmediate(turn);
      try {
        await work();
      } finally {
        longest = Math.max(longest, performance.now() - before);
        clearImmediate(pending);
      }
      return longest;
    },
  };
}

/** @param title makes the schema different from those that were compiled before */
function largeSchema(numProperties: number, title: number): JsonSchema {
  const address = {
    type: 'object',
    properties: {
      street: { type: 'string', maxLength: 80 },
      zip: { type: 'string', pattern: '^[0-9]{5}(-[0-9]{4})?$' },
    },
    required: ['street'],
  };
  const kinds = [
    { type: 'string', format: 'date-time' },
    { type: 'array', items: address, maxItems: 20 },
    { type: 'integer', minimum: -1_000_000, maximum: 123_456_789 },
    { anyOf: [{ type: 'number' }, { enum: ['none', 'some', 'all'] }, address] },
  ];
  const names = Array.from({ length: numProperties }, (_, index) => `property${index}`);
  const properties = Object.fromEntries(names.map((name, index) => [name, kinds[index % kinds.length] as JsonSchema]));
  return {
    type: 'object',
    properties: { ...properties, [`title${title}`]: { type: 'string' } },
    required: names.slice(0, 50),
  };
}

async function templateOf(source: string, folder: string): Promise<Model['chatTemplate']> {
  await mkdir(folder, { recursive: true });
  const vocabulary = { type: 'BPE', vocab: { a: 0, b: 1 }, merges: [] };
  const files = {
    'config.json': { model_type: 'llama' },
    'tokenizer.json': { model: vocabulary },
    'tokenizer_config.json': { chat_template: source },
  };
  for (const [name, content] of Object.entries(files)) await writeFile(join(folder, name), JSON.stringify(content));
  return (await openTokenizer(`${folder}/`)).chatTemplate;
}
