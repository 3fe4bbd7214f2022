import { expect, test } from 'vitest';
import { Turns } from './changes.js';

const never = new AbortController().signal;

test('a task that gives up before its turn does not let later ones pass', async () => {
  const turns = new Turns();
  const { promise, resolve: end } = Promise.withResolvers<void>();
  const order: string[] = [];
  const first = turns.run(async () => {
    order.push('first');
    await promise;
    order.push('end');
  }, never);
  const leaving = new AbortController();
  const second = turns.run(async () => void order.push('second'), leaving.signal);
  const third = turns.run(async () => void order.push('third'), never);
  leaving.abort(new Error('left'));
  await expect(second).rejects.toThrow('left');
  await new Promise((resolve) => setImmediate(resolve));
  expect(order).toEqual(['first']);
  end();
  await Promise.all([first, third]);
  expect(order).toEqual(['first', 'end', 'third']);
});
