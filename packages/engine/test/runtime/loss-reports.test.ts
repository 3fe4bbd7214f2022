/** Callbacks report each row and each layer of each step once, even if the device is lost. */
import { afterEach, describe, expect, test } from 'vitest';
import {
  loadEmbeddingModel,
  loadModel,
  type FeedForwardAccess,
  type EmbeddingLoadOptions,
  type LoadOptions,
} from '../../src/index.js';
import { archPath } from '../support/golden-files.js';
import { losingDevices, type Devices } from '../support/losing-devices.js';

const llama = archPath('llama', 'model.gguf') as string;
const encoder = archPath('bert-mean', 'model.gguf') as string;
const tokens = [1, 2, 3, 4, 5, 6, 7];

const models: AsyncDisposable[] = [];
afterEach(async () => {
  for (const model of models.splice(0)) await model[Symbol.asyncDispose]();
});

/** Runs a task without loss, then once for every third of its reads with the device lost at that read. */
async function expectSameReports(run: (devices: Devices) => Promise<readonly string[]>): Promise<void> {
  let numReads = 0;
  const quiet = losingDevices((moment, { numRuns }) => {
    if (moment === 'read' && numRuns > 0) numReads++;
    return false;
  });
  const expected = await run(quiet);
  expect(new Set(expected).size).toBe(expected.length);
  for (let read = 1; read <= numReads; read += 3) {
    let left = read;
    const devices = losingDevices(
      (moment, { numRuns, numCreated }) => moment === 'read' && numRuns > 0 && numCreated === 1 && --left === 0,
    );
    expect(await run(devices), `lost at read ${read} of ${numReads}`).toEqual(expected);
    expect(devices.numCreated).toBe(2);
  }
}

async function generating(
  { createBackend }: Devices,
  options: LoadOptions,
): Promise<Awaited<ReturnType<typeof loadModel>>> {
  const model = await loadModel(llama, { context: 64, createBackend, ...options });
  models.push(model);
  return model;
}

test('rows and attention of every step are reported once', async () => {
  await expectSameReports(async (devices) => {
    const heard: string[] = [];
    const model = await generating(devices, { trace: { attention: true } });
    await model.logprobs(tokens, {
      positions: [1, 2, 6],
      batchSize: 3,
      onAttention: ({ layer, begin, numTokens }) => void heard.push(`layer ${layer} of ${begin} + ${numTokens}`),
      onRow: (position) => void heard.push(`row ${position}`),
    });
    return heard;
  });
});

describe('a trace of the FFNs', () => {
  const traced = { trace: { feedForward: true } } satisfies LoadOptions & EmbeddingLoadOptions;

  async function layersHeard(access: FeedForwardAccess | undefined): Promise<readonly string[]> {
    const heard: string[] = [];
    await access?.trace(tokens, ({ layer, begin }) => void heard.push(`layer ${layer} of ${begin}`));
    return heard;
  }

  test('is reported once by a model that generates', async () => {
    await expectSameReports(async (devices) => {
      return layersHeard((await generating(devices, { ...traced, batchSize: 4 })).feedForward);
    });
  });

  test('is reported once by a model that embeds', async () => {
    await expectSameReports(async ({ createBackend }) => {
      const model = await loadEmbeddingModel(encoder, { ...traced, createBackend });
      models.push(model);
      return layersHeard(model.feedForward);
    });
  });
});
