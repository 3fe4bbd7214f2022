/** Stores with the dense layers of an embedding model. */
import type { TensorStore } from '@winnow/bytes';
import { expect, test } from 'vitest';
import { colbertStore, openDenseLayers, type DenseLayers } from './encoder-settings.js';

function stores() {
  const closed: string[] = [];
  const open = async (name: string): Promise<TensorStore> => {
    if (name === 'missing') throw new Error('no such file');
    const close = async (): Promise<void> => void closed.push(name);
    return { name, tensors: new Map([['linear.weight', { name } as never]]), close };
  };
  return { open, closed };
}

const pooled = (...files: string[]): DenseLayers => ({ files, isPerToken: false });

test('the layers of modules are added in their order, and closed with the store', async () => {
  const { open, closed } = stores();
  const store = await openDenseLayers(await open('weights'), pooled('2_Dense', '3_Dense'), open);
  expect([...store.tensors.keys()]).toEqual(['linear.weight', 'dense_2.weight', 'dense_3.weight']);
  await store.close();
  expect(closed).toEqual(['weights', '2_Dense', '3_Dense']);
});

test('a module that cannot be opened leaves nothing open', async () => {
  const { open, closed } = stores();
  const opening = openDenseLayers(await open('weights'), pooled('2_Dense', 'missing'), open);
  await expect(opening).rejects.toThrow('no such file');
  expect(closed).toEqual(['weights', '2_Dense']);
});

test('the layer that computes the vectors of tokens is a module, or beside the other tensors', async () => {
  const { open } = stores();
  const whole = await openDenseLayers(await open('weights'), { files: ['1_Dense'], isPerToken: true }, open);
  expect([...whole.tensors.keys()]).toEqual(['linear.weight', 'colbert_linear.weight']);
  expect([...colbertStore(await open('weights')).tensors.keys()]).toEqual(['colbert_linear.weight']);
});
