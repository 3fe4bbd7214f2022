/** The contract of `Executable` about runs besides numerical results. */
import { ProgramBuilder, type BufferHandle } from '@winnow/ops';
import { compareExact } from '../compare.js';
import { rngOf } from '../values.js';
import {
  allocateTable,
  checkStillRuns,
  prepareSums,
  refused,
  rejectsWith,
  scalarsOf,
  sums,
  width,
  type CreateBackend,
} from './fixtures.js';

export async function checkUnknownOps(create: CreateBackend): Promise<string[]> {
  const backend = await create();
  const program = sums(1);
  const unknown = { ...program, records: program.records.map((record) => ({ ...record, op: 'no-such-op' })) };
  const buffers = new Map([['table', await allocateTable(backend)]]);
  const failures = await refused('prepare of an unknown op', 'unsupported-op', () =>
    backend.prepare(unknown, { buffers, onUnsupported: 'error' }),
  );
  if (backend.supports('no-such-op', { dtypes: {}, attributes: {} }).supported) failures.push('supports an unknown op');
  await backend.dispose();
  return failures;
}

export async function checkScalarsFit(create: CreateBackend): Promise<string[]> {
  const backend = await create();
  const program = sums(2);
  const executable = await prepareSums(backend, program);
  const scalars = scalarsOf(program, [1, 2, 3]);
  const withT = (value: number): Int32Array => {
    const words = scalars.slice();
    words[program.scalars.slots.get('T')?.wordOffset ?? 0] = value;
    return words;
  };
  const failures = [
    ...(await refused('too few scalars', 'argument', () => executable.run(scalars.subarray(1)))),
    ...(await refused('too many scalars', 'argument', () => executable.run(new Int32Array(scalars.length + 1)))),
    ...(await refused('a symbol above its capacity', 'capacity', () => executable.run(withT(4)))),
    ...(await refused('a negative symbol', 'argument', () => executable.run(withT(-1)))),
    ...(await checkStillRuns(executable, 2, 'after rejected scalars')),
  ];
  await executable.run(scalarsOf(program, [])); // no tokens: nothing to do, and no failure
  await backend.dispose();
  return failures;
}

export async function checkReads(create: CreateBackend): Promise<string[]> {
  const backend = await create();
  const executable = await prepareSums(backend, sums(1));
  await executable.run(scalarsOf(executable.program, [1]));
  const failures = [
    ...(await refused('read of an unknown output', 'argument', () => executable.read('z', new Float32Array(1)))),
    ...(await refused('read of f32 as integers', 'argument', () => executable.read('y', new Int32Array(1)))),
    ...(await refused('read past the capacity', 'argument', () =>
      executable.read('y', new Float32Array(3 * width + 1)),
    )),
  ];
  await backend.dispose();
  return failures;
}

export async function checkAbort(create: CreateBackend): Promise<string[]> {
  const backend = await create();
  const program = sums(4);
  const table = await allocateTable(backend);
  const buffers = new Map([['table', table]]);
  const executable = await backend.prepare(program, { buffers });
  const scalars = scalarsOf(program, [1]);
  const reason = new Error('enough');
  const aborted = AbortSignal.abort(reason);
  const controller = new AbortController();
  const failures = [
    ...(await rejectsWith('prepare when aborted', reason, () =>
      backend.prepare(program, { buffers, signal: aborted }),
    )),
    ...(await rejectsWith('run when aborted', reason, () => executable.run(scalars, { signal: aborted }))),
    ...(await rejectsWith('run aborted at a boundary', reason, () =>
      executable.run(scalars, { signal: controller.signal, onBoundary: async () => controller.abort(reason) }),
    )),
    ...(await rejectsWith('run whose boundary fails', reason, () =>
      executable.run(scalars, { onBoundary: () => Promise.reject(reason) }),
    )),
    ...(await checkStillRuns(executable, 4, 'after an abort')),
  ];
  await backend.dispose();
  return failures;
}

export async function checkOneRunAtATime(create: CreateBackend): Promise<string[]> {
  const backend = await create();
  const program = sums(4);
  const executable = await prepareSums(backend, program);
  let release = (): void => {};
  let atBoundary = (): void => {};
  const reached = new Promise<void>((resolve) => (atBoundary = resolve));
  const run = executable.run(scalarsOf(program, [1]), {
    onBoundary: () => {
      atBoundary();
      return new Promise((resolve) => (release = resolve));
    },
  });
  await reached;
  const failures = await refused('a second run at the same time', 'backend', () =>
    executable.run(scalarsOf(program, [1])),
  );
  release();
  await run;
  failures.push(...(await checkStillRuns(executable, 4, 'after a rejected second run')));
  await backend.dispose();
  return failures;
}

export async function checkEventLoop(create: CreateBackend): Promise<string[]> {
  const backend = await create();
  const { setTimeout } = globalThis as unknown as { setTimeout(callback: () => void, delayMs: number): void };
  const failures: string[] = [];
  // far longer than a backend may keep the host's thread
  for (const [what, numAdds, numRuns] of [
    ['one long program', 4000, 500],
    ['many short runs', 3, 100_000],
  ] as const) {
    const program = sums(numAdds);
    const executable = await prepareSums(backend, program);
    let numTicks = 0;
    let isDone = false;
    const tick = (): void => {
      numTicks++;
      if (!isDone) setTimeout(tick, 0);
    };
    setTimeout(tick, 0);
    let run = 0;
    for (; run < numRuns && numTicks < 3; run++) await executable.run(scalarsOf(program, [1]));
    isDone = true;
    if (numTicks < 3) failures.push(`${what}: ${numTicks} turns of the event loop in ${run} runs`);
    await executable.dispose();
  }
  await backend.dispose();
  return failures;
}

export async function checkDeterminism(create: CreateBackend): Promise<string[]> {
  const backend = await create();
  const [numTokens, numInputs, numOutputs] = [7, 1023, 193];
  const b = new ProgramBuilder({});
  const contents = new Map<string, Float32Array>();
  const rng = rngOf('determinism');
  const external = (name: string, ...shape: number[]): ReturnType<ProgramBuilder['external']> => {
    const length = shape.reduce((product, dim) => product * dim, 1);
    contents.set(
      name,
      Float32Array.from({ length }, () => rng.nextGaussian()),
    );
    return b.external(name, 'weights', 'f32', shape);
  };
  const x = external('x', numTokens, numInputs);
  const y = b.activation('matmul', { x, weight: external('weight', numOutputs, numInputs) });
  const z = b.activation('softmax', {
    x: b.activation('rms-norm', { x: y, weight: external('norm', numOutputs) }, { eps: 1e-5 }),
  });
  b.output('y', y);
  b.output('z', z);
  b.output('logSumExp', b.activation('log-sum-exp', { x: y }));
  const buffers = new Map<string, BufferHandle>();
  for (const [name, values] of contents) {
    const handle = backend.allocate({ sizeBytes: values.byteLength, usage: 'weights', label: name });
    await backend.write(handle, 0, new Uint8Array(values.buffer));
    buffers.set(name, handle);
  }
  const executable = await backend.prepare(b.build(), { buffers });
  const failures: string[] = [];
  let first: Float32Array | undefined;
  for (let run = 0; run < 8; run++) {
    await executable.run(new Int32Array(0));
    const found = new Float32Array(2 * numTokens * numOutputs + numTokens);
    await executable.read('y', found.subarray(0, numTokens * numOutputs));
    await executable.read('z', found.subarray(numTokens * numOutputs, 2 * numTokens * numOutputs));
    await executable.read('logSumExp', found.subarray(2 * numTokens * numOutputs));
    first ??= found;
    const difference = compareExact(found, first);
    if (difference !== undefined) failures.push(`run ${run} differs from the first: ${difference}`);
  }
  await backend.dispose();
  return failures;
}

export async function checkProfile(create: CreateBackend): Promise<string[]> {
  const backend = await create();
  const program = sums(2);
  const executable = await prepareSums(backend, program, true);
  await executable.run(scalarsOf(program, [1, 2]));
  await executable.run(scalarsOf(program, [1]));
  const failures: string[] = [];
  const profile = executable.profile();
  const ops = profile.map(({ op }) => op).join(' ');
  if (ops !== 'embedding-lookup add add') failures.push(`profile of other records: ${ops}`);
  for (const { op, numRuns, timeMs, flops, bytes } of profile) {
    if (numRuns !== 2) failures.push(`${op}: ${numRuns} runs instead of 2`);
    if (!(timeMs >= 0)) failures.push(`${op}: ${timeMs} ms`);
    if (flops !== 3 * width) failures.push(`${op}: ${flops} flops instead of ${3 * width}`);
    if (!(bytes > 0)) failures.push(`${op}: ${bytes} bytes`);
  }
  const unprofiled = await prepareSums(backend, program);
  await unprofiled.run(scalarsOf(program, [1]));
  if (unprofiled.profile().length !== 0) failures.push('a profile that was not requested');
  await backend.dispose();
  return failures;
}

export async function checkDispose(create: CreateBackend): Promise<string[]> {
  const backend = await create();
  const program = sums(4);
  const first = await prepareSums(backend, program);
  const second = await prepareSums(backend, program);
  const failures = await refused('a run that is disposed in the middle', 'released', () =>
    first.run(scalarsOf(program, [1]), { onBoundary: () => first.dispose() }),
  );
  failures.push(
    ...(await refused('run after dispose', 'released', () => first.run(scalarsOf(program, [1])))),
    ...(await refused('read after dispose', 'released', () => first.read('y', new Float32Array(1)))),
    ...(await checkStillRuns(second, 4, 'after another executable was disposed')),
  );
  await first.dispose();
  const table = await allocateTable(backend);
  await backend.dispose();
  await backend.dispose();
  const buffers = new Map([['table', table]]);
  failures.push(
    ...(await refused('run after the backend', 'released', () => second.run(scalarsOf(program, [1])))),
    ...(await refused('write after the backend', 'released', () => backend.write(table, 0, new Uint8Array(1)))),
    ...(await refused('prepare after the backend', 'released', () => backend.prepare(program, { buffers }))),
    ...(await refused('allocate after the backend', 'released', () =>
      backend.allocate({ sizeBytes: 1, usage: 'kv', label: 'late' }),
    )),
  );
  return failures;
}
