/** Runs a program record by record on host memory. */
import { ArgumentError, BackendError, ReleasedError, tensorBytes, type DType } from '@winnow/tensor';
import type { Executable, RecordProfile, RunOptions } from './backend.js';
import { maxElements } from './dims.js';
import type { RecordShapes, TensorView } from './op-spec.js';
import { scalarBufferIndex, type OpRecord, type Program, type TensorRef } from './program.js';
import { opSpec } from './registry.js';
import { checkScalars } from './scalars.js';

export interface ReferenceExecution {
  readonly now: () => number;
  readonly yieldToHost: () => Promise<void>;
  readonly profile: boolean;
  /** Throws when a bound buffer was freed. */
  readonly checkMemory: () => void;
  readonly onDispose: () => void;
}

/** An axis whose size is a word of the scalar block. */
interface BoundAxis {
  readonly shape: number[];
  readonly axis: number;
  readonly word: number;
}

/** How long ops may run before the host's event loop gets a turn. */
const maxBusyMs = 8;

/** @param memory the bytes of each program buffer */
export function createReferenceExecutable(
  program: Program,
  memory: readonly Uint8Array[],
  { now, yieldToHost, profile, checkMemory, onDispose }: ReferenceExecution,
): Executable {
  const boundAxes: BoundAxis[] = [];
  const view = (tensor: TensorRef): TensorView => createView(program, memory, tensor, boundAxes);
  let kernels = program.records.map((record) => bindRecord(record, view));
  let outputs = new Map([...program.outputs].map(([name, tensor]) => [name, view(tensor)]));
  const totals = profile ? program.records.map(() => ({ numRuns: 0, timeMs: 0, flops: 0, bytes: 0 })) : undefined;
  const scalarBytes = memory[scalarBufferIndex];
  const words = new Int32Array(scalarBytes.buffer, scalarBytes.byteOffset, program.scalars.numWords);
  let isRunning = false;
  let lastYield = now(); // kept from run to run: many short runs must not starve the host either
  let isDisposed = false;

  async function runSegment(begin: number, end: number, signal: AbortSignal | undefined): Promise<void> {
    for (let index = begin; index < end; index++) {
      signal?.throwIfAborted();
      const start = totals === undefined ? 0 : now();
      kernels[index].run();
      if (totals !== undefined) {
        const total = totals[index];
        total.numRuns++;
        total.timeMs += now() - start;
        const shapes = kernels[index].shapes;
        const { op, attributes } = program.records[index];
        const spec = opSpec(op);
        total.flops += spec.flops(shapes, attributes);
        total.bytes += spec.bytes?.(shapes, attributes, kernels[index].dtypes) ?? kernels[index].tensorBytes();
      }
      if (now() - lastYield > maxBusyMs) {
        await yieldToHost();
        if (isDisposed) throw new ReleasedError('executable');
        checkMemory();
        lastYield = now();
      }
    }
  }

  return {
    program,
    fallbacks: [],
    async run(scalars, options: RunOptions = {}): Promise<void> {
      if (isDisposed) throw new ReleasedError('executable');
      if (isRunning) throw new BackendError({ backend: 'reference', message: 'the executable is running already' });
      checkScalars(scalars, program.scalars, program.symbols);
      checkMemory();
      options.signal?.throwIfAborted();
      isRunning = true;
      try {
        words.set(scalars);
        for (const { shape, axis, word } of boundAxes) shape[axis] = words[word];
        for (const { begin, end, boundary } of program.segments) {
          await runSegment(begin, end, options.signal);
          if (boundary === undefined) continue;
          await options.onBoundary?.(boundary);
          if (isDisposed) throw new ReleasedError('executable');
          checkMemory();
        }
      } finally {
        isRunning = false;
      }
    },
    async read(output, target): Promise<void> {
      if (isDisposed) throw new ReleasedError('executable');
      const source = outputs.get(output);
      const data = source?.data;
      if (data === undefined || data.constructor !== target.constructor || data.length < target.length) {
        const known = [...outputs].map(([name, { dtype, data }]) => `${name} (${dtype}, at most ${data.length})`);
        throw new ArgumentError({
          argument: 'read',
          expected: `one of ${known.join(', ')}`,
          actual: `${output}, ${target.length} elements of ${target.constructor.name}`,
        });
      }
      target.set(data.subarray(0, target.length));
    },
    profile(): RecordProfile[] {
      return (totals ?? []).map((total, index) => {
        const { op, layer } = program.records[index];
        return { op, layer, ...total };
      });
    },
    async dispose(): Promise<void> {
      if (isDisposed) return;
      isDisposed = true;
      kernels = [];
      outputs = new Map();
      onDispose();
    },
  };
}

interface BoundKernel {
  readonly run: () => void;
  readonly shapes: RecordShapes;
  readonly dtypes: Readonly<Record<string, DType>>;
  readonly tensorBytes: () => number;
}

function bindRecord(record: OpRecord, view: (tensor: TensorRef) => TensorView): BoundKernel {
  const views = (tensors: Readonly<Record<string, TensorRef>>): Record<string, TensorView> =>
    Object.fromEntries(Object.entries(tensors).map(([name, tensor]) => [name, view(tensor)]));
  const inputs = views(record.inputs);
  const outputs = views(record.outputs);
  const all = [...Object.entries(outputs), ...Object.entries(inputs)]; // where names meet, shapes are the input's
  return {
    run: opSpec(record.op).bindReference({ inputs, outputs, attributes: record.attributes }),
    shapes: Object.fromEntries(all.map(([name, { shape }]) => [name, shape])),
    dtypes: Object.fromEntries(all.map(([name, { dtype }]) => [name, dtype])),
    tensorBytes: () => all.reduce((sum, [, { dtype, shape }]) => sum + tensorBytes(dtype, shape), 0),
  };
}

function createView(
  program: Program,
  memory: readonly Uint8Array[],
  tensor: TensorRef,
  boundAxes: BoundAxis[],
): TensorView {
  const shape = tensor.shape.map((dim) => (typeof dim === 'number' ? dim : 0));
  for (const [axis, dim] of tensor.shape.entries()) {
    const slot = typeof dim === 'string' ? program.scalars.slots.get(dim) : undefined;
    if (slot !== undefined) boundAxes.push({ shape, axis, word: slot.wordOffset });
  }
  const numElements = maxElements(tensor.shape, program.symbols);
  return { dtype: tensor.dtype, shape, data: typedView(memory[tensor.buffer], tensor, numElements) };
}

function typedView(bytes: Uint8Array, { byteOffset, dtype }: TensorRef, numElements: number): TensorView['data'] {
  const start = bytes.byteOffset + byteOffset;
  if (dtype === 'f32') return new Float32Array(bytes.buffer, start, numElements);
  if (dtype === 'i32') return new Int32Array(bytes.buffer, start, numElements);
  return bytes.subarray(byteOffset, byteOffset + tensorBytes(dtype, [numElements]));
}
