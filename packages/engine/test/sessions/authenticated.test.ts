/** Sessions saved with a key: only files of its holders are restored, and those share what was computed after them. */
import { memorySink, memorySource } from '@winnow/bytes';
import { ArgumentError, FormatError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { loadModel, type Session } from '../../src/index.js';
import { archPath } from '../support/golden-files.js';
import { greedy, ids } from '../support/prompts.js';

const path = archPath('llama', 'model.gguf') as string;
const key = new Uint8Array(32).fill(7);

async function save(session: Session, secret?: Uint8Array): Promise<Uint8Array> {
  const sink = memorySink();
  await session.save(sink, secret === undefined ? {} : { key: secret });
  return sink.toBytes().slice();
}

test.each([
  ['share what is computed after it', key, 192],
  ['share nothing without the key', undefined, 80],
])('sessions restored from one file %s', async (_name, given, cachedTokens) => {
  await using model = await loadModel(path, { context: 256, maxSessions: 3, kvCache: { capacity: 1024 } });
  using session = model.createSession();
  await session.generate(ids(80), { ...greedy, maxTokens: 0 }).result();
  const file = await save(session, key);
  session.reset();
  const options = given === undefined ? {} : { key: given };
  using first = await model.restoreSession(memorySource(file), options);
  using second = await model.restoreSession(memorySource(file), options);
  const whole = await first.generate(ids(200), { ...greedy, maxTokens: 4 }).result();
  const again = await second.generate(ids(200), { ...greedy, maxTokens: 4 }).result();
  expect([whole.cachedTokens, again.cachedTokens]).toEqual([80, cachedTokens]);
  expect(again.tokens).toEqual(whole.tokens);
  // sessions that were not restored share with neither
  await using other = await loadModel(path, { context: 256, maxSessions: 2 });
  using restored = await other.restoreSession(memorySource(file), options);
  expect((await other.generate(ids(81), { ...greedy, maxTokens: 1 }).result()).cachedTokens).toBe(0);
  expect(restored.tokens).toHaveLength(80);
});

test('files of another key, and of none, are rejected and leave nothing behind', async () => {
  await using model = await loadModel(path, { context: 256, maxSessions: 2 });
  using session = model.createSession();
  await session.generate(ids(20), { ...greedy, maxTokens: 0 }).result();
  const { numUsedBlocks } = model.metrics().cache;
  for (const secret of [undefined, new Uint8Array(32).fill(8)]) {
    const error: unknown = await model
      .restoreSession(memorySource(await save(session, secret)), { key })
      .catch((caught: unknown) => caught);
    expect(FormatError.isInstance(error) && [error.field, error.message]).toEqual([
      'mac',
      expect.stringContaining('expected a MAC by the given key, got'),
    ]);
  }
  const sink = memorySink();
  await expect(session.save(sink, { key: new Uint8Array(8) })).rejects.toThrow(ArgumentError);
  expect(() => sink.toBytes()).toThrow();
  expect(model.metrics()).toMatchObject({ numSessions: 1, cache: { numUsedBlocks } });
});
