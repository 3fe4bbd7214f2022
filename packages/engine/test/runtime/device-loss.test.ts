/** A model whose backend loses its device reloads the weights and recomputes sequences from their tokens. */
import { memorySink, memorySource } from '@winnow/bytes';
import { DeviceLostError } from '@winnow/tensor';
import { afterEach, describe, expect, test } from 'vitest';
import { loadModel, type EngineEvent, type GenerateOptions, type LoadOptions, type Model } from '../../src/index.js';
import { archPath } from '../support/golden-files.js';
import { losesOnceIn, losingDevices, type Devices } from '../support/losing-devices.js';
import { greedy, ids } from '../support/prompts.js';

const path = archPath('llama', 'model.gguf') as string;
const hybrid = archPath('granitehybrid', 'model.gguf') as string;

const models: Model[] = [];
afterEach(async () => {
  for (const model of models.splice(0)) await model.dispose();
});

async function load(devices: Devices, options: LoadOptions = {}, from = path): Promise<Model> {
  const model = await loadModel(from, {
    ...{ context: 128, kvCache: { capacity: 1024 }, createBackend: devices.createBackend },
    ...options,
  });
  models.push(model);
  return model;
}

const prompts = [ids(30), ids(70, 11), ids(5, 13), ids(64, 17)];
const options: GenerateOptions = { ...greedy, maxTokens: 12 };

async function generate(model: Model, prompt: readonly number[], more: GenerateOptions = {}): Promise<number[]> {
  return [...(await model.generate(prompt, { ...options, ...more }).result()).tokens];
}

async function expectedOf(from = path): Promise<number[][]> {
  const model = await load(losingDevices(), {}, from);
  const expected: number[][] = [];
  for (const prompt of prompts) expected.push(await generate(model, prompt));
  return expected;
}

describe.each([
  ['llama', path],
  ['granitehybrid, with recurrent states', hybrid],
])('%s', (_name, from) => {
  test('a sequence gives the same greedy tokens, whichever step loses the device', async () => {
    const [expected] = await expectedOf(from);
    for (const step of [1, 2, 7, 12]) {
      let isDue = true;
      const devices = losingDevices((moment, { numRuns }) => {
        if (moment !== 'run' || numRuns !== step || !isDue) return false;
        isDue = false;
        return true;
      });
      const events: EngineEvent[] = [];
      const model = await load(devices, { onEvent: (event) => void events.push(event) }, from);
      expect(await generate(model, ids(30))).toEqual(expected);
      expect(devices.numCreated).toBe(2);
      expect(model.metrics().steps.numDeviceLosses).toBe(1);
      expect(events.filter(({ kind }) => kind === 'device-lost')).toEqual([
        { kind: 'device-lost', reason: 'device 1 is gone' },
      ]);
    }
  });

  test('a batch gives the same greedy tokens, also when the device is lost before outputs are read', async () => {
    const expected = await expectedOf(from);
    for (const moment of ['run', 'read'] as const) {
      let numLeft = 3;
      let count = 0;
      const devices = losingDevices((at, { numRuns }) => {
        if (at !== moment || numRuns < 5 || numLeft === 0 || ++count % 9 !== 0) return false;
        numLeft--;
        return true;
      });
      const model = await load(devices, {}, from);
      expect(await Promise.all(prompts.map((prompt) => generate(model, prompt)))).toEqual(expected);
      expect(devices.numCreated).toBe(4);
    }
  });
});

test('idle sessions continue, fork and are saved as before', async () => {
  const [expected] = await expectedOf();
  const devices = losingDevices();
  const model = await load(devices);
  const session = model.createSession();
  const first = [...(await session.generate(ids(30), { ...options, maxTokens: 5 }).result()).tokens];
  const tokens = session.tokens;
  devices.lose();
  await generate(model, ids(9)); // another session notices
  expect(devices.numCreated).toBe(2);
  expect(session.tokens).toEqual(tokens);
  const sink = memorySink();
  await session.save(sink);
  const fork = session.fork();
  const again = await model.restoreSession(memorySource(sink.toBytes()));
  for (const one of [session, fork, again]) {
    const rest = (await one.generate([...ids(30), ...first], { ...options, maxTokens: 7 }).result()).tokens;
    expect([...first, ...rest]).toEqual(expected);
  }
});

test('losses while the device is replaced; the model gives up after three in a row', async () => {
  const [expected] = await expectedOf();
  for (const moment of ['write', 'prepare'] as const) {
    let numLost = 0;
    let most = 3; // once in a step, then twice in a row
    const devices = losingDevices((at, { numRuns, numCreated }) => {
      const isFirst = numLost === 0 && at === 'run' && numRuns === 4;
      const isAgain = numLost > 0 && numLost < most && at === moment && numCreated === numLost + 1;
      if (isFirst || isAgain) numLost++;
      return isFirst || isAgain;
    });
    const model = await load(devices);
    expect(await generate(model, ids(30))).toEqual(expected);
    expect(devices.numCreated).toBe(4);
    [numLost, most, devices.numCreated, devices.numRuns] = [0, 4, 1, 0];
    await expect(generate(model, ids(30))).rejects.toThrow(DeviceLostError);
    expect(devices.numCreated).toBe(4);
    expect(await generate(model, ids(30))).toEqual(expected); // the next request tries again
  }
});

test('aborts while the device is replaced reject that request only', async () => {
  const [expected, other] = await expectedOf();
  const controller = new AbortController();
  let isLost = false;
  const devices = losingDevices((at, { numRuns, numCreated }) => {
    if (at === 'write' && numCreated === 2) controller.abort(new Error('enough'));
    if (at !== 'run' || numRuns < 6 || isLost) return false;
    return (isLost = true);
  });
  const model = await load(devices);
  const aborted = model.generate(ids(70, 11), { ...options, signal: controller.signal });
  const results = await Promise.allSettled([generate(model, ids(30)), aborted.result(), generate(model, ids(70, 11))]);
  expect(results[0]).toEqual({ status: 'fulfilled', value: expected });
  expect(results[2]).toEqual({ status: 'fulfilled', value: other });
  const ended = results[1];
  if (ended.status === 'fulfilled') expect(ended.value.finishReason).toBe('abort');
  else expect(String(ended.reason)).toContain('enough');
  expect(devices.numCreated).toBe(2);
});

test('a loss during loading rejects, and a backend passed by the caller is not replaced', async () => {
  for (const moment of ['write', 'prepare'] as const) {
    await expect(load(losingDevices((at) => at === moment))).rejects.toThrow(DeviceLostError);
  }
  const devices = losingDevices((at, { numRuns }) => at === 'run' && numRuns === 3);
  const backend = await devices.createBackend();
  const model = await loadModel(path, { context: 128, backend });
  models.push(model);
  await expect(generate(model, ids(30))).rejects.toThrow('device 1 is gone');
  expect(devices.numCreated).toBe(1);
});

test('with a policy per phase, positions computed by decode are recomputed by prefill', async () => {
  const attention = 'prefill=dense;decode=sparq:rank=32,topk=128'; // all keys of the context: exact
  const expected = await expectedOf();
  const model = await load(losesOnceIn(8), { attention });
  expect(await Promise.all(prompts.map((prompt) => generate(model, prompt)))).toEqual(expected);
  expect(model.metrics().steps.numDeviceLosses).toBe(1);
});

test('a request that loses every device is rejected', async () => {
  let isPoisoned = false;
  const devices = losingDevices((moment) => moment === 'run' && isPoisoned);
  const model = await load(devices);
  isPoisoned = true;
  await expect(generate(model, ids(30))).rejects.toThrow(DeviceLostError);
  expect(devices.numCreated).toBeLessThan(8);
  isPoisoned = false;
  expect(await generate(model, ids(30))).toHaveLength(12);
});
