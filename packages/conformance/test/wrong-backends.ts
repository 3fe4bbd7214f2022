/** Backends that are wrong in one way each, made from the reference: the suite has to catch every one. */
import {
  arenaBufferIndex,
  createReferenceBackend,
  dispatchProgram,
  type Backend,
  type Executable,
  type KernelBackend,
  type OpRecord,
  type PrepareOptions,
  type Program,
  type TensorRef,
} from '@winnow/ops';

type ChangeProgram = (program: Program) => Program;

/** The reference, with programs changed before they are prepared. */
export function withProgram(change: ChangeProgram): Backend {
  const backend = createReferenceBackend();
  return { ...backend, prepare: (program, options) => backend.prepare(change(program), options) };
}

/** The reference, with executables changed after they are prepared. */
export function withExecutable(
  change: (executable: Executable, backend: Backend, options: PrepareOptions) => Partial<Executable>,
): Backend {
  const backend = createReferenceBackend();
  return {
    ...backend,
    async prepare(program, options) {
      const executable = await backend.prepare(program, options);
      return { ...executable, ...change(executable, backend, options) };
    },
  };
}

/** Adds to one value of every f32 output of programs with this op. */
export function offBy(op: string, amount: (value: number) => number): Backend {
  return withExecutable((executable) => ({
    async read(name, target) {
      await executable.read(name, target);
      if (name.startsWith('canary') || !(target instanceof Float32Array) || target.length === 0) return;
      if (!executable.program.records.some((record) => record.op === op)) return;
      const index = target.findIndex((value) => Number.isFinite(value) && value !== 0);
      if (index >= 0) target[index] += amount(target[index]);
    },
  }));
}

/** Leaves out the records of an op: their outputs keep what was there before. */
export function withoutRecords(op: string): Backend {
  return withProgram((program) => {
    const records = program.records.filter((record) => record.op !== op);
    return { ...program, records, segments: [{ begin: 0, end: records.length, boundary: undefined }] };
  });
}

/** After each record of an op, doubles the 64 bytes that follow its output in the arena. */
export function writingPastTheEnd(op: string): Backend {
  return withProgram((program) => {
    const arenaBytes = program.buffers[arenaBufferIndex].sizeBytes;
    const records = program.records.flatMap((record): OpRecord[] => {
      const output = Object.values(record.outputs)[0];
      if (record.op !== op || output.buffer !== arenaBufferIndex) return [record];
      const numValues = output.shape.reduce<number>(
        (product, dim) => product * (typeof dim === 'number' ? dim : (program.symbols.get(dim) ?? 0)),
        1,
      );
      const end = output.byteOffset + Math.max(1, Math.ceil((numValues * 4) / 64)) * 64;
      if (end + 64 > arenaBytes) return [record];
      const after: TensorRef = { name: 'after', buffer: arenaBufferIndex, byteOffset: end, dtype: 'f32', shape: [16] };
      return [record, { op: 'add', inputs: { a: after, b: after }, outputs: { y: after }, attributes: {}, layer: -1 }];
    });
    return { ...program, records, segments: [{ begin: 0, end: records.length, boundary: undefined }] };
  });
}

/** After each run, changes the byte at `position` of the named buffer, from the end when negative. */
export function scribbling(name: string, position: number): Backend {
  return withExecutable((executable, backend, { buffers }) => ({
    async run(scalars, options) {
      await executable.run(scalars, options);
      const handle = buffers.get(name);
      const bytes = handle === undefined ? undefined : backend.view(handle);
      if (bytes === undefined || bytes.length === 0) return;
      bytes[position < 0 ? bytes.length + position : position] ^= 1;
    },
  }));
}

/** Says it has no kernel for an op and leaves its records to the dispatcher. */
export function honestlyWithout(op: string, canSeeMemory = true): Backend {
  const reference = createReferenceBackend();
  const backend: Backend = {
    ...reference,
    supports: (name, description) =>
      name === op ? { supported: false, reason: 'no kernel' } : reference.supports(name, description),
    ...(canSeeMemory ? {} : { view: () => undefined }),
    prepare: (program, options) => dispatchProgram(kernels, program, options),
  };
  const kernels: KernelBackend = {
    ...backend,
    now: () => 0,
    prepareKernels(program, options) {
      if (program.records.some((record) => record.op === op)) throw new Error(`${op} reached the kernels`);
      return reference.prepare(program, options);
    },
  };
  return backend;
}

/** Says it supports everything, and runs an op on the reference even where fallbacks are errors. */
export function silentlyFallingBack(op: string): Backend {
  return withExecutable(({ program }) => {
    const numRecords = program.records.filter((record) => record.op === op).length;
    return { fallbacks: numRecords === 0 ? [] : [{ op, reason: 'slow path', numRecords }] };
  });
}

/** Gives other last bits in every run. */
export function nondeterministic(): Backend {
  let numReads = 0;
  return withExecutable((executable) => ({
    async read(name, target) {
      await executable.read(name, target);
      if (name === 'y' && target instanceof Float32Array && target.length > 0)
        target[0] *= 1 + (numReads++ % 3) * 2 ** -23;
    },
  }));
}

/** Copies what lies in both buffers, whatever was asked for. */
export function clippingCopies(): Backend {
  const backend = createReferenceBackend();
  return {
    ...backend,
    async copy(from, fromOffset, to, toOffset, sizeBytes) {
      const source = backend.view(from) as Uint8Array;
      const target = backend.view(to) as Uint8Array;
      const length = Math.min(sizeBytes, source.length - fromOffset, target.length - toOffset);
      if (length > 0 && fromOffset >= 0 && toOffset >= 0) {
        target.set(source.slice(fromOffset, fromOffset + length), toOffset);
      }
    },
  };
}

/** Copies in a turn of the event loop of its own, whatever runs by then. */
export function copyingLate(): Backend {
  const backend = createReferenceBackend();
  return {
    ...backend,
    async copy(...request) {
      await new Promise((resolve) => setTimeout(resolve, 0));
      await backend.copy(...request);
    },
  };
}
