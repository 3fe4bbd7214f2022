/** Every opened source is closed exactly once, whether loading succeeds or fails. */
import { readFile } from 'node:fs/promises';
import { memorySource } from '@winnow/bytes';
import { memoryFolder, type HubFiles } from '@winnow/hub';
import { createReferenceBackend } from '@winnow/ops';
import { BackendError, FormatError, WinnowError } from '@winnow/tensor';
import { beforeAll, describe, expect, test } from 'vitest';
import { inspectModel, loadModel, openTokenizer, type ModelLocation } from '../../src/index.js';
import { archPath } from '../support/golden-files.js';
import {
  countedFolder,
  countedSource,
  tinyFolder,
  watchedBackend,
  wordTokenizer,
  type Handles,
} from '../support/tiny-model.js';

let gguf: Uint8Array;
beforeAll(async () => {
  gguf = new Uint8Array(await readFile(archPath('llama', 'model.gguf') as string));
});

/** The GGUF file with `from` replaced by `to`, of equal length, at its first occurrence after `after`. */
function patched(after: string, from: string, to: string): Uint8Array {
  const text = new TextDecoder('latin1').decode(gguf);
  const at = text.indexOf(from, text.indexOf(after));
  expect(at).toBeGreaterThan(0);
  const bytes = gguf.slice();
  bytes.set(new TextEncoder().encode(to), at);
  return bytes;
}

/** A checkpoint whose only tensor has a dtype that Winnow does not know. */
async function float8Folder(): Promise<HubFiles> {
  const header = JSON.stringify({ 'model.norm.weight': { dtype: 'F8_E4M3', shape: [8], data_offsets: [0, 8] } });
  const bytes = new Uint8Array(8 + header.length + 8);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(header.length), true);
  bytes.set(new TextEncoder().encode(header), 8);
  return memoryFolder({ 'config.json': '{"model_type": "llama"}', 'model.safetensors': bytes });
}

type Use = 'loadModel' | 'inspectModel' | 'openTokenizer';
const uses: readonly [Use, (location: ModelLocation) => Promise<unknown>][] = [
  ['loadModel', async (location) => (await loadModel(location)).dispose()],
  ['inspectModel', (location) => inspectModel(location)],
  ['openTokenizer', (location) => openTokenizer(location)],
];

/** GGUF files, each with the uses that succeed because they do not need the broken part. */
const sources: readonly [string, () => Uint8Array, ...Use[]][] = [
  ['a model', () => gguf, 'loadModel', 'inspectModel', 'openTokenizer'],
  ['no GGUF file', () => new Uint8Array(100)],
  ['a file that is cut off', () => gguf.subarray(0, 5000)],
  ['an unknown architecture', () => patched('general.architecture', 'llama', 'xlama'), 'openTokenizer'],
  ['an unknown tokenizer', () => patched('tokenizer.ggml.model', 'llama', 'xxxxx'), 'inspectModel'],
];

const tokenizer = wordTokenizer(['a', 'b']);
/** Folders, in the same way. */
const folders: readonly [string, () => Promise<HubFiles>, ...Use[]][] = [
  ['a model without a tokenizer', () => tinyFolder(), 'loadModel', 'inspectModel'],
  [
    'a model',
    () => tinyFolder({ files: { 'tokenizer.json': tokenizer } }),
    'loadModel',
    'inspectModel',
    'openTokenizer',
  ],
  ['an empty folder', async () => memoryFolder({})],
  ['broken JSON', async () => memoryFolder({ 'config.json': '{"model_type": ' })],
  ['no weights', async () => memoryFolder({ 'config.json': '{"model_type": "llama"}' })],
  [
    'broken weights',
    async () => memoryFolder({ 'config.json': '{}', 'model.safetensors': new Uint8Array(40).fill(255) }),
  ],
  ['a broken tokenizer', () => tinyFolder({ files: { 'tokenizer.json': { model: { type: 'BPE' } } } }), 'inspectModel'],
  ['broken sampling', () => tinyFolder({ files: { 'generation_config.json': { temperature: 'hot' } } })],
  ['an unknown architecture', () => tinyFolder({ config: { model_type: 'xlama' } })],
  ['tensors of 8-bit floats', float8Folder],
  ['a missing layer', () => tinyFolder({ config: { num_hidden_layers: 2 } })],
  [
    'a missing shard',
    async () =>
      memoryFolder({
        'config.json': '{"model_type": "llama"}',
        'model.safetensors.index.json': '{"weight_map": {"a": "model-00001-of-00001.safetensors"}}',
      }),
  ],
];

describe.each(uses)('%s', (name, use) => {
  const outcome = async (location: ModelLocation): Promise<unknown> =>
    use(location).then(
      () => 'success',
      (error: unknown) => error,
    );

  test.each(sources)('GGUF: %s', async (_case, bytes, ...succeeding) => {
    const handles: Handles = { opened: 0, closed: 0, closedAgain: 0 };
    const result = await outcome(countedSource(memorySource(bytes()), handles));
    expect(result).toEqual(succeeding.includes(name) ? 'success' : expect.any(FormatError));
    expect(handles).toEqual({ opened: 1, closed: 1, closedAgain: 0 });
  });

  test.each(folders)('folder: %s', async (_case, folder, ...succeeding) => {
    const handles: Handles = { opened: 0, closed: 0, closedAgain: 0 };
    const result = await outcome(countedFolder(await folder(), handles));
    if (succeeding.includes(name)) expect(result).toBe('success');
    else expect(WinnowError.isInstance(result), String(result)).toBe(true);
    expect(handles.closed).toBe(handles.opened);
    expect(handles.closedAgain).toBe(0);
  });
});

describe('a backend of the caller', () => {
  test('gets all its memory back after a load that fails late and after a model is disposed', async () => {
    const folder = await tinyFolder();
    const inner = createReferenceBackend();
    let numPrepared = 0;
    const { backend, log } = watchedBackend({
      ...inner,
      async prepare(program, options) {
        if (++numPrepared === 2) throw new BackendError({ backend: 'test', message: 'no second program' });
        return inner.prepare(program, options);
      },
    });
    await expect(loadModel(folder, { backend })).rejects.toThrow('no second program');
    expect(log.peakBytes).toBeGreaterThan(0);
    expect([log.liveBytes, log.programBytes]).toEqual([0, 0]);
    const model = await loadModel(folder, { backend });
    expect(log.liveBytes).toBeGreaterThan(0);
    // both wait until everything is freed
    await Promise.all([model.dispose(), model.dispose()]);
    expect([log.liveBytes, log.programBytes]).toEqual([0, 0]);
    await backend.dispose();
  });

  test('allocates exactly the bytes of the plan', async () => {
    for (const options of [{}, { context: 100, batchSize: 7, maxSessions: 3, kvCache: { dtype: 'f16' as const } }]) {
      const { backend, log } = watchedBackend(createReferenceBackend());
      const model = await loadModel(await tinyFolder(), { ...options, backend });
      expect(log.liveBytes).toBe(model.plan.weightsBytes + model.plan.kvBytes);
      expect(log.programBytes).toBe(model.plan.activationBytes);
      await model.dispose();
      await backend.dispose();
    }
  });
});

test('a tokenizer opens from a folder without weights, and a model is inspected without a usable tokenizer', async () => {
  const full = await tinyFolder({ files: { 'tokenizer.json': { model: { type: 'BPE' } } } });
  expect((await inspectModel(full)).config.vocabSize).toBe(20);
  expect((await inspectModel(memorySource(patched('tokenizer.ggml.model', 'llama', 'xxxxx')))).format).toBe('gguf');
  const without = memoryFolder({
    'config.json': '{"model_type": "llama"}',
    'tokenizer.json': JSON.stringify(wordTokenizer(['a', 'b'])),
  });
  expect([...(await openTokenizer(without)).tokenizer.encode('ab')]).toEqual([0, 1]);
  await expect(openTokenizer(memoryFolder({ 'config.json': '{}' }))).rejects.toThrow(/tokenizer\.json: missing/);
});

test('a tensor of an unknown dtype is named, not reported as missing', async () => {
  const load = loadModel(await float8Folder());
  await expect(load).rejects.toThrow(FormatError);
  await expect(load).rejects.toThrow(/model\.norm\.weight: .*F8_E4M3/);
});
