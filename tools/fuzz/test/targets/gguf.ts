/** GGUF: the integers of the header, and the bytes. Files that can be read are loaded as models. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { memorySource } from '@winnow/bytes';
import { loadModel } from '@winnow/engine';
import { openGguf } from '@winnow/gguf';
import { createReferenceBackend } from '@winnow/ops';
import { extremeInteger, mutateBytes, pick, repoRoot, writeInteger, type Random } from '@winnow/test-utils';
import { ggufVocabulary, tokenizerFromGguf } from '@winnow/tokenizers';
import type { Target } from '../../src/target.ts';

interface IntegerField {
  readonly at: number;
  readonly width: number;
}

const widths: readonly number[] = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8];

/** Counts, lengths, types, dims, offsets and values of a header, up to the first that cannot be read. */
function fieldsOf(bytes: Uint8Array): readonly IntegerField[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const fields: IntegerField[] = [];
  let at = 4;
  const take = (width: number): number => {
    fields.push({ at, width });
    const value = width === 8 ? Number(view.getBigUint64(at, true)) : width === 4 ? view.getUint32(at, true) : 0;
    at += width;
    return value;
  };
  const text = (): void => void (at += take(8));
  const value = (type: number): void => {
    if (type === 8) return text();
    if (type !== 9) return void take(widths[type] ?? 0);
    const element = take(4);
    for (let left = take(8); left > 0 && at < bytes.length; left--) value(element);
  };
  try {
    take(4);
    const numTensors = take(8);
    for (let left = take(8); left > 0; left--) {
      text();
      value(take(4));
    }
    for (let left = numTensors; left > 0; left--) {
      text();
      for (let dims = take(4); dims > 0; dims--) take(8);
      take(4);
      take(8);
    }
  } catch (error) {
    if (!(error instanceof RangeError)) throw error; // the end of the file
  }
  return fields.filter((field) => field.at + field.width <= bytes.length);
}

function mutate(random: Random, input: Uint8Array): Uint8Array {
  const fields = fieldsOf(input);
  if (fields.length === 0 || random.nextInt(4) === 0) return mutateBytes(random, input);
  const { at, width } = pick(random, fields);
  return writeInteger(input.slice(), at, width, extremeInteger(random));
}

const fixtures = join(repoRoot, 'packages', 'gguf', 'src', '__fixtures__');

export async function createTarget(): Promise<Target> {
  const read = (...path: string[]): Uint8Array => new Uint8Array(readFileSync(join(fixtures, ...path)));
  const llama = join(repoRoot, 'packages', 'engine', 'test', 'fixtures', 'arch', 'llama', 'model.gguf');
  const fuzzed = readdirSync(join(fixtures, 'fuzz')).filter((name) => name.endsWith('.gguf'));
  return {
    examples: [read('llama.gguf'), new Uint8Array(readFileSync(llama)), ...fuzzed.map((name) => read('fuzz', name))],
    mutate,
    async run(input) {
      const file = await openGguf(memorySource(input, 'fuzz.gguf'));
      for (const tensor of file.tensors.values()) await tensor.read(new Uint8Array(Math.min(64, tensor.sizeBytes)));
      if (file.metadata.has('tokenizer.ggml.model'))
        tokenizerFromGguf(ggufVocabulary((key) => file.metadata.get(key))).encode('Once upon a time');
      const options = { backend: createReferenceBackend(), context: 16 };
      await using model = await loadModel(memorySource(input, 'fuzz.gguf'), options);
      await model.generate([1, 2, 3], { maxTokens: 1 }).result();
    },
  };
}
