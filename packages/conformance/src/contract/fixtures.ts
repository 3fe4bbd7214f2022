/** Building blocks of contract checks: a small program, its memory, and calls that must be rejected. */
import {
  createScalarBlock,
  ProgramBuilder,
  type Backend,
  type BufferHandle,
  type Executable,
  type Program,
} from '@winnow/ops';
import { WinnowError, type WinnowErrorCode } from '@winnow/tensor';
import { compareExact } from '../compare.js';

/** Creates a fresh backend for a check. */
export type CreateBackend = () => Promise<Backend>;
export type ContractCheck = (create: CreateBackend) => Promise<string[]>;

export const width: number = 4;
export const tableValues: Float32Array<ArrayBuffer> = Float32Array.from({ length: 5 * width }, (_, i) => i);

/** `y = (numAdds + 1) * table[tokens]`, with a boundary in the middle. */
export function sums(numAdds: number, boundary = 'middle'): Program {
  const b = new ProgramBuilder({ T: 3 });
  const table = b.external('table', 'weights', 'f32', [5, width]);
  const x = b.activation('embedding-lookup', { table, tokens: b.scalar('tokens', ['T']) });
  let y = x;
  for (let i = 0; i < numAdds; i++) {
    if (i === numAdds >> 1) b.boundary(boundary);
    y = b.activation('add', { a: y, b: x });
  }
  b.output('y', y);
  return b.build();
}

export async function allocateTable(backend: Backend): Promise<BufferHandle> {
  const table = backend.allocate({ sizeBytes: tableValues.byteLength, usage: 'weights', label: 'table' });
  await backend.write(table, 0, new Uint8Array(tableValues.buffer));
  return table;
}

export async function prepareSums(backend: Backend, program: Program, profile = false): Promise<Executable> {
  return backend.prepare(program, { buffers: new Map([['table', await allocateTable(backend)]]), profile });
}

export function scalarsOf(program: Program, tokens: readonly number[]): Int32Array {
  const block = createScalarBlock(program.scalars, program.symbols);
  block.bind('T', tokens.length);
  block.slot('tokens').set(tokens);
  return block.words;
}

/** Runs with token 2 and compares `y`. */
export async function checkStillRuns(executable: Executable, numAdds: number, when: string): Promise<string[]> {
  await executable.run(scalarsOf(executable.program, [2]));
  const y = new Float32Array(width);
  await executable.read('y', y);
  const expected = [8, 9, 10, 11].map((value) => value * (numAdds + 1));
  const failure = compareExact(y, expected);
  return failure === undefined ? [] : [`${when}: ${failure}`];
}

/** The error that a call throws or rejects with. */
export async function errorOf(act: () => unknown): Promise<unknown> {
  try {
    await act();
  } catch (error) {
    return error ?? 'nothing';
  }
  return undefined;
}

/** @returns one failure unless the call is rejected with a Winnow error of this code */
export async function refused(what: string, code: WinnowErrorCode, act: () => unknown): Promise<string[]> {
  const error = await errorOf(act);
  if (error === undefined) return [`${what}: went through instead of a refusal of family '${code}'`];
  if (WinnowError.isInstance(error) && error.code === code) return [];
  return [`${what}: ${String(error)} instead of a refusal of family '${code}'`];
}

export async function rejectsWith(what: string, reason: unknown, act: () => unknown): Promise<string[]> {
  const error = await errorOf(act);
  return error === reason ? [] : [`${what}: ${String(error)} instead of ${String(reason)}`];
}
