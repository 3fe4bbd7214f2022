import { BlobError, type BlobStore } from '@winnow/jobs';
import { expect, test } from 'vitest';
import { Records } from './records.js';

/** A store of one record, whose first reads find that it was replaced, or end in the middle of it. */
function replacedStore(numReplaced: number, isNoticed = true): BlobStore {
  let numReads = 0;
  return {
    stat: async (key: string) => ({ key, sizeBytes: 1 }),
    async *read(source: string) {
      yield new TextEncoder().encode('{"id":');
      if (numReads++ < numReplaced) {
        if (!isNoticed) return;
        throw new BlobError({ source, reason: 'changed', message: 'it was replaced' });
      }
      yield new TextEncoder().encode('"a","created_at":1}');
    },
  } as unknown as BlobStore;
}

test('a record that is replaced while it is read is read again, a limited number of times', async () => {
  const read = (numReplaced: number) => new Records(replacedStore(numReplaced), 'files').get('a', undefined);
  expect(await read(2)).toEqual({ id: 'a', created_at: 1 });
  await expect(read(3)).rejects.toMatchObject({ reason: 'changed' });
});

test('a record of which an object store returns only a part is read again, a limited number of times', async () => {
  const read = (numParts: number) => new Records(replacedStore(numParts, false), 'files').get('a', undefined);
  expect(await read(2)).toEqual({ id: 'a', created_at: 1 });
  await expect(read(3)).rejects.toThrow(SyntaxError);
});
