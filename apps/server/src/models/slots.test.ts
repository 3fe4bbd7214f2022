import { expect, test } from 'vitest';
import { Slots, type Lease } from './slots.js';

const never = new AbortController().signal;

function slots(numSlots: number, maxQueued = 10, queueTimeoutMs = 60_000): Slots {
  return new Slots({ numSlots, maxQueued, queueTimeoutMs, now: () => 0 });
}

test('are granted in order of request', async () => {
  const two = slots(2);
  const order: string[] = [];
  const ask = async (id: string): Promise<Lease> => {
    const lease = await two.acquire(id, never);
    order.push(id);
    return lease;
  };
  const [first, second] = [await ask('a'), await ask('b')];
  const later = ['c', 'd', 'e'].map(ask);
  expect([two.numRunning, two.numQueued]).toEqual([2, 3]);
  second.release();
  const third = await later[0];
  first.release();
  await later[1];
  third?.release();
  await later[2];
  expect(order).toEqual(['a', 'b', 'c', 'd', 'e']);
  expect(two.activities.map((activity) => activity?.requestId)).toEqual(['d', 'e']);
});

test('can be released only once', async () => {
  const one = slots(1);
  const lease = await one.acquire('a', never);
  lease.release();
  await one.acquire('b', never);
  lease.release();
  expect(one.activities[0]?.requestId).toBe('b');
});

test('a granted slot is not taken by a later request', async () => {
  const one = slots(1);
  const lease = await one.acquire('a', never);
  const waiting = one.acquire('b', never);
  lease.release();
  const late = one.acquire('c', never); // before `b` resumes
  expect(one.numQueued).toBe(1);
  (await waiting).release();
  expect((await late).activity.requestId).toBe('c');
});

test('a request that leaves the queue does not block it', async () => {
  const one = slots(1);
  const lease = await one.acquire('a', never);
  const controller = new AbortController();
  const gone = one.acquire('b', controller.signal);
  const next = one.acquire('c', never);
  controller.abort(new Error('gone'));
  await expect(gone).rejects.toThrow('gone');
  lease.release();
  expect((await next).activity.requestId).toBe('c');
  await expect(one.acquire('d', controller.signal)).rejects.toThrow('gone');
  expect(one.numQueued).toBe(0);
});

test('a rejected request may retry once the queue, at its current pace, has been served', async () => {
  let now = 0;
  const one = new Slots({ numSlots: 1, maxQueued: 1, queueTimeoutMs: 60_000, now: () => now });
  for (let round = 0; round < 200; round++) {
    const lease = await one.acquire('a', never);
    now += 7000;
    lease.release();
  }
  await one.acquire('a', never);
  const waiting = one.acquire('b', never);
  // one runs and one waits: two turns of 7 s
  await expect(one.acquire('c', never)).rejects.toMatchObject({ status: 429, retryAfterSeconds: 14 });
  one.close();
  await expect(waiting).rejects.toMatchObject({ status: 503, code: 'shutting_down' });
  await expect(one.acquire('d', never)).rejects.toMatchObject({ status: 503 });
});

test('a queue of length zero rejects at once', async () => {
  const one = slots(1, 0);
  await one.acquire('a', never);
  await expect(one.acquire('b', never)).rejects.toMatchObject({ status: 429 });
});

test('patient ones give way, and wait beyond the limits', async () => {
  const one = slots(1, 1, 1);
  const order: string[] = [];
  const ask = async (id: string, isPatient: boolean): Promise<Lease> => {
    const lease = await one.acquire(id, never, isPatient);
    order.push(id);
    return lease;
  };
  const first = await ask('a', false);
  const patient = [ask('b', true), ask('c', true)];
  await new Promise((resolve) => setTimeout(resolve, 5)); // longer than others may wait
  const impatient = ask('d', false);
  first.release();
  (await impatient).release();
  (await patient[0])?.release();
  await patient[1];
  expect(order).toEqual(['a', 'd', 'b', 'c']);
});
