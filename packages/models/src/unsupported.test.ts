import { FormatError } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import { architectures, describeModel, Fields, type ModelFile } from './index.js';
import { knownUnsupported } from './unsupported.js';

function fileOf(format: ModelFile['format'], name: unknown): ModelFile {
  const field = format === 'gguf' ? 'general.architecture' : 'model_type';
  const store = { name: 'model', tensors: new Map(), close: async () => undefined };
  return { format, fields: Fields.ofJson('model', { [field]: name }), store };
}

async function messageOf(format: ModelFile['format'], name: unknown): Promise<string> {
  const error = await describeModel(fileOf(format, name)).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(FormatError);
  return (error as FormatError).message;
}

test.each([
  ['gguf', 'glm-dsa', 'it needs a description of its layers', 'deepseek2'],
  ['safetensors', 'deepseek_v32', 'it needs a description of its layers', 'deepseek2'],
  ['safetensors', 'jamba', 'it needs a description of its state-space layers', 'granitehybrid'],
  ['gguf', 'rwkv7', 'it needs the recurrence, the shifted tokens and the channel mixing of RWKV', 'qwen35'],
  ['safetensors', 'ernie4_5_moe', 'it needs a description of its layers', 'ernie4_5'],
  ['gguf', 'jina-bert-v3', 'it needs rotary positions in these blocks and an adapter per task', 'nomic-bert'],
  ['safetensors', 'roberta', 'it needs the positions and tokens of this encoder', 'xlm-roberta'],
  ['safetensors', 'mllama', 'it needs an image encoder', 'llama'],
  ['safetensors', 'qwen4', 'it needs a description of its layers', 'qwen2'],
  ['safetensors', 'phi5', 'it needs a description of its layers', 'phi2'],
  ['safetensors', 'gpt_neo', 'it needs a description of its layers', 'gpt2'],
  ['gguf', 'nemotron', 'it needs a description of its layers', 'llama'],
] as const)('%s %s: the name, what is missing, and the nearest family', async (format, name, missing, nearest) => {
  const message = await messageOf(format, name);
  expect(message).toContain(`architecture "${name}" is not supported: ${missing}`);
  expect(message).toContain(`; the nearest supported family is ${nearest}; expected one of llama, `);
});

test.each([5, undefined])('a name that is %s', async (name) => {
  expect(await messageOf('safetensors', name)).toMatch(/is not supported; expected one of llama, /);
});

describe('the table', () => {
  const supported = architectures.flatMap(({ ggufNames, hubNames }) => [...ggufNames, ...hubNames]);

  test('names only supported families as the nearest', () => {
    const families = new Set(architectures.map(({ name }) => name));
    expect(knownUnsupported.filter(({ nearest }) => !families.has(nearest))).toEqual([]);
  });

  test('has no entry that a supported architecture has made obsolete', () => {
    const names = knownUnsupported.flatMap((entry) => entry.names);
    expect(names.filter((name) => supported.includes(name))).toEqual([]);
  });

  test('finds every entry by its own name, which no earlier entry hides', async () => {
    for (const { names, nearest } of knownUnsupported) {
      for (const name of names)
        expect([name, await messageOf('gguf', name)]).toEqual([name, expect.stringContaining(`family is ${nearest};`)]);
    }
  });
});
