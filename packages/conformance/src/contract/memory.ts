/** The contract of `Backend` about buffers: ranges, owners, and use after free. */
import { type BufferHandle, type Executable } from '@winnow/ops';
import { compareExact } from '../compare.js';
import {
  allocateTable,
  checkStillRuns,
  refused,
  scalarsOf,
  sums,
  tableValues,
  type CreateBackend,
} from './fixtures.js';

export async function checkMemory(create: CreateBackend): Promise<string[]> {
  const backend = await create();
  const options = { usage: 'kv', label: 'cache' } as const;
  const buffer = backend.allocate({ ...options, sizeBytes: 70 });
  const bytes = Uint8Array.from({ length: 70 }, (_, i) => 3 * i + 1);
  await backend.write(buffer, 0, bytes);
  await backend.write(buffer, 65, Uint8Array.of(9, 8, 7));
  bytes.set([9, 8, 7], 65);
  const found = new Uint8Array(66);
  await backend.read(buffer, 3, found);
  const difference = compareExact(found, bytes.subarray(3, 69));
  const failures = difference === undefined ? [] : [`write and read: ${difference}`];
  const view = backend.view(buffer);
  const viewDifference = view === undefined ? undefined : compareExact(view.subarray(0, 70), bytes);
  if (viewDifference !== undefined) failures.push(`view: ${viewDifference}`);
  failures.push(
    ...(await refused('a write past the end', 'argument', () => backend.write(buffer, 69, new Uint8Array(2)))),
    ...(await refused('a write before the start', 'argument', () => backend.write(buffer, -1, new Uint8Array(1)))),
    ...(await refused('a read past the end', 'argument', () => backend.read(buffer, 1, new Uint8Array(70)))),
    ...(await refused('memory beyond any limit', 'capacity', () =>
      backend.allocate({ ...options, sizeBytes: 2 ** 50 }),
    )),
    ...(await refused('a negative size', 'argument', () => backend.allocate({ ...options, sizeBytes: -1 }))),
  );
  const empty = backend.allocate({ ...options, sizeBytes: 0 });
  await backend.write(empty, 0, new Uint8Array(0));
  backend.free(empty);
  await backend.dispose();
  return failures;
}

export async function checkForeignBuffers(create: CreateBackend): Promise<string[]> {
  const [backend, other] = [await create(), await create()];
  const foreign = await allocateTable(other);
  const small = backend.allocate({ sizeBytes: tableValues.byteLength - 1, usage: 'weights', label: 'small' });
  const prepare = (handle?: BufferHandle): Promise<Executable> =>
    backend.prepare(sums(1), { buffers: new Map(handle === undefined ? [] : [['table', handle]]) });
  const failures = [
    ...(await refused('prepare with a buffer of another backend', 'backend', () => prepare(foreign))),
    ...(await refused('write to a buffer of another backend', 'backend', () =>
      backend.write(foreign, 0, new Uint8Array(1)),
    )),
    ...(await refused('read of a buffer of another backend', 'backend', () =>
      backend.read(foreign, 0, new Uint8Array(1)),
    )),
    ...(await refused('free of a buffer of another backend', 'backend', () => backend.free(foreign))),
    ...(await refused('prepare without a buffer', 'argument', () => prepare())),
    ...(await refused('prepare with a buffer that is too small', 'argument', () => prepare(small))),
  ];
  await backend.dispose();
  await other.dispose();
  return failures;
}

export async function checkFreedBuffers(create: CreateBackend): Promise<string[]> {
  const backend = await create();
  const program = sums(1);
  const table = await allocateTable(backend);
  const buffers = new Map([['table', table]]);
  const executable = await backend.prepare(program, { buffers });
  backend.free(table);
  const failures = [
    ...(await refused('run with a freed buffer', 'released', () => executable.run(scalarsOf(program, [1])))),
    ...(await refused('prepare with a freed buffer', 'released', () => backend.prepare(program, { buffers }))),
    ...(await refused('write to a freed buffer', 'released', () => backend.write(table, 0, new Uint8Array(1)))),
    ...(await refused('read of a freed buffer', 'released', () => backend.read(table, 0, new Uint8Array(1)))),
    ...(await refused('a second free', 'released', () => backend.free(table))),
  ];
  await backend.dispose();
  return failures;
}

export async function checkSharedBuffers(create: CreateBackend): Promise<string[]> {
  const backend = await create();
  const buffers = new Map([['table', await allocateTable(backend)]]);
  const [one, three] = [await backend.prepare(sums(1), { buffers }), await backend.prepare(sums(3), { buffers })];
  const failures = [
    ...(await checkStillRuns(one, 1, 'first of two programs')),
    ...(await checkStillRuns(three, 3, 'second of two programs')),
    ...(await checkStillRuns(one, 1, 'first of two programs again')),
  ];
  await Promise.all([one.run(scalarsOf(one.program, [1])), three.run(scalarsOf(three.program, [1]))]);
  await backend.dispose();
  return failures;
}
