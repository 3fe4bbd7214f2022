/** The contract of `Backend.copy`: bytes, ranges, and order with respect to runs. */
import { createScalarBlock, ProgramBuilder, type Backend, type BufferHandle, type Program } from '@winnow/ops';
import { compareExact } from '../compare.js';
import { refused, type CreateBackend } from './fixtures.js';

const sizeBytes = 256;
/** A size that is a multiple of every alignment in use. */
const block = 64;

async function allocateBytes(backend: Backend, label: string, first: number): Promise<BufferHandle> {
  const buffer = backend.allocate({ sizeBytes, usage: 'kv', label });
  await backend.write(buffer, 0, counting(first));
  return buffer;
}

function counting(first: number): Uint8Array {
  return Uint8Array.from({ length: sizeBytes }, (_, i) => first + 5 * i);
}

async function contentOf(backend: Backend, buffer: BufferHandle): Promise<Uint8Array> {
  const bytes = new Uint8Array(buffer.sizeBytes);
  await backend.read(buffer, 0, bytes);
  return bytes;
}

async function compareContent(
  what: string,
  backend: Backend,
  buffer: BufferHandle,
  expected: Uint8Array,
): Promise<string[]> {
  const failure = compareExact(await contentOf(backend, buffer), expected);
  return failure === undefined ? [] : [`${what}: ${failure}`];
}

export async function checkCopies(create: CreateBackend): Promise<string[]> {
  const backend = await create();
  const [from, to] = [await allocateBytes(backend, 'from', 1), await allocateBytes(backend, 'to', 100)];
  const [source, target] = [counting(1), counting(100)];
  const unit = backend.limits.copyAlignment;
  const failures: string[] = [];
  await backend.copy(from, unit, to, 2 * block, 2 * unit);
  target.set(source.subarray(unit, 3 * unit), 2 * block);
  failures.push(...(await compareContent('between buffers', backend, to, target)));
  await backend.copy(from, block, to, sizeBytes - block, block);
  target.set(source.subarray(block, 2 * block), sizeBytes - block);
  failures.push(...(await compareContent('up to the end', backend, to, target)));
  failures.push(...(await compareContent('source of a copy', backend, from, source)));
  await backend.copy(to, 2 * block, to, block, block); // adjacent, without a shared byte
  target.copyWithin(block, 2 * block, 3 * block);
  failures.push(...(await compareContent('to the bytes before', backend, to, target)));
  await backend.copy(to, 0, to, 3 * block, block);
  target.copyWithin(3 * block, 0, block);
  failures.push(...(await compareContent('within a buffer', backend, to, target)));
  await backend.copy(from, sizeBytes, to, 0, 0);
  await backend.copy(to, block, to, block, 0);
  failures.push(...(await compareContent('nothing', backend, to, target)));
  await backend.dispose();
  return failures;
}

export async function checkRefusedCopies(create: CreateBackend): Promise<string[]> {
  const [backend, other] = [await create(), await create()];
  const [from, to] = [await allocateBytes(backend, 'from', 1), await allocateBytes(backend, 'to', 100)];
  const foreign = await allocateBytes(other, 'foreign', 7);
  const freed = await allocateBytes(backend, 'freed', 9);
  backend.free(freed);
  const unit = backend.limits.copyAlignment;
  const cases: readonly (readonly [string, 'argument' | 'backend' | 'released', () => unknown])[] = [
    ['a copy past the end of the source', 'argument', () => backend.copy(from, 3 * block, to, 0, 2 * block)],
    ['a copy past the end of the target', 'argument', () => backend.copy(from, 0, to, sizeBytes, block)],
    ['a copy from before the start', 'argument', () => backend.copy(from, -block, to, 0, block)],
    ['a copy to before the start', 'argument', () => backend.copy(from, 0, to, -block, block)],
    ['a copy of a negative size', 'argument', () => backend.copy(from, block, to, block, -block)],
    ['a copy of half a byte', 'argument', () => backend.copy(from, 0, to, 0, 0.5)],
    ['a copy onto itself', 'argument', () => backend.copy(to, block, to, block, block)],
    ['a copy that overlaps from below', 'argument', () => backend.copy(to, 0, to, unit, 2 * unit)],
    ['a copy that overlaps from above', 'argument', () => backend.copy(to, unit, to, 0, 2 * unit)],
    ['a copy from another backend', 'backend', () => backend.copy(foreign, 0, to, 0, block)],
    ['a copy to another backend', 'backend', () => backend.copy(from, 0, foreign, 0, block)],
    ['a copy of a freed buffer', 'released', () => backend.copy(freed, 0, to, 0, block)],
    ['a copy to a freed buffer', 'released', () => backend.copy(from, 0, freed, 0, block)],
  ];
  const failures: string[] = [];
  for (const [what, code, act] of cases) failures.push(...(await refused(what, code, act)));
  if (unit > 1) {
    failures.push(
      ...(await refused('a copy off the alignment', 'argument', () => backend.copy(from, 1, to, 0, block))),
    );
  }
  failures.push(...(await compareContent('target of rejected copies', backend, to, counting(100))));
  await backend.dispose();
  await other.dispose();
  failures.push(...(await refused('a copy after the backend', 'released', () => backend.copy(from, 0, to, 0, block))));
  return failures;
}

const rowLength = 64;
const numRows = 512;

/** Stores `x + x` by row, and after a boundary the rows of `early` again, with a program that takes a while. */
function storing(): Program {
  const b = new ProgramBuilder({ T: numRows });
  const rows = b.scalar('rows', ['T']);
  const table = (name: string, usage: 'weights' | 'kv') => b.external(name, usage, 'f32', [numRows, rowLength]);
  const x = b.activation('gather-rows', { x: table('x', 'kv'), rows });
  let sum = x;
  for (let i = 0; i < 20; i++) sum = b.activation('add', { a: sum, b: x });
  b.append('scatter-rows', { x: sum, rows }, {}, { y: table('early', 'kv') });
  b.boundary('stored');
  const again = b.activation('gather-rows', { x: table('early', 'kv'), rows });
  b.append('scatter-rows', { x: again, rows }, {}, { y: table('late', 'kv') });
  return b.build();
}

/** Copies that are not awaited: before a run, of other buffers during a run, and at its boundary. */
export async function checkCopyOrder(create: CreateBackend): Promise<string[]> {
  const backend = await create();
  const tableBytes = numRows * rowLength * 4;
  const allocate = async (name: string, value: number): Promise<BufferHandle> => {
    const buffer = backend.allocate({ sizeBytes: tableBytes, usage: 'kv', label: name });
    await backend.write(buffer, 0, new Uint8Array(new Float32Array(tableBytes / 4).fill(value).buffer));
    return buffer;
  };
  const [x, early, late] = [await allocate('x', 1), await allocate('early', -1), await allocate('late', -2)];
  const [two, three, kept] = [await allocate('two', 2), await allocate('three', 3), await allocate('kept', -3)];
  const program = storing();
  const buffers = new Map(Object.entries({ x, early, late }));
  const executable = await backend.prepare(program, { buffers });
  const scalars = createScalarBlock(program.scalars, program.symbols);
  scalars.bind('T', numRows);
  scalars.slot('rows').set(Int32Array.from({ length: numRows }, (_, row) => row));
  const before = backend.copy(two, 0, x, 0, tableBytes);
  let atBoundary: Promise<void> | undefined;
  const onBoundary = async (): Promise<void> => {
    atBoundary = backend.copy(three, 0, early, 0, tableBytes / 2);
  };
  const run = executable.run(scalars.words, { onBoundary });
  const during = backend.copy(two, 0, kept, 0, tableBytes);
  await Promise.all([before, run, during]);
  await atBoundary;
  const bytesOf = (first: number, second: number): Uint8Array => {
    const values = new Float32Array(tableBytes / 4).fill(second);
    return new Uint8Array(values.fill(first, 0, values.length / 2).buffer);
  };
  const failures = [
    ...(await compareContent('a copy during a run', backend, kept, bytesOf(2, 2))),
    ...(await compareContent('a run after a copy', backend, early, bytesOf(3, 42))),
    ...(await compareContent('a copy at a boundary', backend, late, bytesOf(3, 42))),
  ];
  await backend.dispose();
  return failures;
}
