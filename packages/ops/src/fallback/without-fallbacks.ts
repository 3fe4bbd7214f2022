/**
 * Removes the records without kernels from a program. Each run of such records becomes a boundary, at which the host
 * computes them; the activations that they read or write move from the arena to buffers that the host can access.
 */
import { invariant, tensorBytes } from '@winnow/tensor';
import { opSpec } from '../ops/registry.js';
import { arenaBufferIndex, type OpRecord, type Program, type Segment, type TensorRef } from '../program/program.js';
import { maxElements } from '../spec/dims.js';

export interface SplitProgram {
  /** The records that the backend has kernels for, over the buffers of the program and the shared ones. */
  readonly program: Program;
  /** Index of each of its records in the whole program. */
  readonly recordIndices: readonly number[];
  /** The records that the host computes at each boundary: indices in `records`. */
  readonly hostRecords: ReadonlyMap<string, readonly number[]>;
  /** All records of the whole program, over the same buffers as `program`. */
  readonly records: readonly OpRecord[];
  /** Names and sizes of the buffers that hold activations for the host. */
  readonly sharedBuffers: ReadonlyMap<string, number>;
}

/** @param isUnsupported whether a record, by index, must run on the host */
export function withoutFallbacks(program: Program, isUnsupported: (record: number) => boolean): SplitProgram {
  const moved = new MovedActivations(program);
  for (const [index, record] of program.records.entries()) if (isUnsupported(index)) moved.add(record);
  const records = program.records.map((record) => moved.inRecord(record));
  const recordIndices: number[] = [];
  const segments: Segment[] = [];
  const hostRecords = new Map<string, number[]>();
  for (const { begin, end, boundary } of program.segments) {
    let first = recordIndices.length;
    for (let index = begin; index < end;) {
      if (!isUnsupported(index)) {
        recordIndices.push(index++);
        continue;
      }
      const name = `fallback.${index}`;
      const run: number[] = [];
      while (index < end && isUnsupported(index)) run.push(index++);
      hostRecords.set(name, run);
      segments.push({ begin: first, end: recordIndices.length, boundary: name });
      first = recordIndices.length;
    }
    segments.push({ begin: first, end: recordIndices.length, boundary });
  }
  return {
    program: {
      ...program,
      records: recordIndices.map((index) => records[index]),
      buffers: [...program.buffers, ...moved.buffers()],
      segments,
      outputs: new Map([...program.outputs].map(([name, tensor]) => [name, moved.inTensor(tensor)])),
    },
    recordIndices,
    hostRecords,
    records,
    sharedBuffers: new Map(moved.buffers().map(({ name, sizeBytes }) => [name, sizeBytes])),
  };
}

/** An activation, identified by name, at the arena offset where it is computed. */
interface MovedActivation {
  readonly buffer: number;
  readonly byteOffset: number;
  readonly sizeBytes: number;
}

/** Activations in their own buffers. Tensors with the same name have the same values and move together. */
class MovedActivations {
  readonly #program: Program;
  readonly #moved = new Map<string, MovedActivation>();

  constructor(program: Program) {
    this.#program = program;
  }

  /** Moves all activations of a record. */
  add({ inputs, outputs }: OpRecord): void {
    for (const { buffer, name } of [...Object.values(inputs), ...Object.values(outputs)]) {
      if (buffer !== arenaBufferIndex || this.#moved.has(name)) continue;
      const { dtype, shape, byteOffset } = this.#computed(name);
      const sizeBytes = tensorBytes(dtype, [maxElements(shape, this.#program.symbols)]);
      this.#moved.set(name, { buffer: this.#program.buffers.length + this.#moved.size, byteOffset, sizeBytes });
    }
  }

  buffers(): Program['buffers'] {
    return [...this.#moved].map(([name, { sizeBytes }]) => ({ name: `fallback.${name}`, usage: 'kv', sizeBytes }));
  }

  inTensor(tensor: TensorRef): TensorRef {
    const place = tensor.buffer === arenaBufferIndex ? this.#moved.get(tensor.name) : undefined;
    return place === undefined
      ? tensor
      : { ...tensor, buffer: place.buffer, byteOffset: tensor.byteOffset - place.byteOffset };
  }

  inRecord(record: OpRecord): OpRecord {
    const inTensors = (tensors: OpRecord['inputs']): OpRecord['inputs'] =>
      Object.fromEntries(Object.entries(tensors).map(([name, tensor]) => [name, this.inTensor(tensor)]));
    return { ...record, inputs: inTensors(record.inputs), outputs: inTensors(record.outputs) };
  }

  /** The whole tensor of a name, as computed; other records may read rows of it. */
  #computed(name: string): TensorRef {
    for (const { op, outputs } of this.#program.records) {
      for (const [output, tensor] of Object.entries(outputs)) {
        const isComputed = opSpec(op).outputs[output]?.updates !== true;
        if (isComputed && tensor.name === name && tensor.buffer === arenaBufferIndex) return tensor;
      }
    }
    invariant(false, `a record computes ${name}`);
  }
}
