/** Collects the ops of a forward pass and compiles them into a `Program`. Checks every shape as it is appended. */
import {
  ArgumentError,
  dtypeInfo,
  formatShape,
  numElements,
  ShapeError,
  tensorBytes,
  type DType,
} from '@winnow/tensor';
import { opSpec } from '../ops/registry.js';
import { elementsKey, maxElements, type Dim } from '../spec/dims.js';
import { inferOp } from '../spec/infer-op.js';
import type { Attributes } from '../spec/op-spec.js';
import {
  newActivation,
  planDraft,
  type DraftRecord,
  type DraftSegment,
  type DraftStorage,
  type DraftTensor,
} from './draft-program.js';
import { scalarBufferIndex, type BufferUsage, type Program, type ProgramBuffer } from './program.js';
import type { ScalarSlot } from './scalars.js';

/** A tensor of a program that is being built. Several tensors (reshapes, row ranges) may share one storage. */
export type ProgramTensor = DraftTensor;

/** Inputs by name; `undefined` omits an optional input. */
export type OpInputs = Readonly<Record<string, ProgramTensor | undefined>>;

/**
 * Builds one program.
 *
 * ```ts
 * const b = new ProgramBuilder({ T: 512 });
 * const x = b.activation('embedding-lookup', { table, tokens: b.scalar('tokens', ['T']) }, { scale: 1 });
 * b.output('hidden', x);
 * const program = b.build();
 * ```
 */
export class ProgramBuilder {
  readonly #capacities: ReadonlyMap<string, number>;
  readonly #storages = new Set<DraftStorage>();
  readonly #slots = new Map<string, ScalarSlot>();
  readonly #buffers: ProgramBuffer[] = [];
  readonly #externals = new Map<string, ProgramTensor>();
  readonly #records: DraftRecord[] = [];
  readonly #boundaries: { after: number; name: string }[] = [];
  readonly #outputs = new Map<string, ProgramTensor>();
  #numWords = 0;
  #layer = -1;
  #nameCounter = 0;

  /** @param symbols the capacity of each symbol, by name */
  constructor(symbols: Readonly<Record<string, number>>) {
    for (const [symbol, capacity] of Object.entries(symbols)) {
      if (capacity !== (capacity | 0) || capacity < 0) {
        const expected = 'an integer from 0 to 2^31 - 1';
        throw new ArgumentError({ argument: `capacity of ${symbol}`, expected, actual: String(capacity) });
      }
    }
    this.#capacities = new Map(Object.entries(symbols));
    this.#buffers.push({ name: 'scalars', usage: 'scalars', sizeBytes: 0 });
    this.#buffers.push({ name: 'activations', usage: 'activation', sizeBytes: 0 });
    for (const symbol of this.#capacities.keys()) this.scalar(symbol, []);
  }

  /** Capacity of a symbol. */
  capacity(symbol: string): number {
    const capacity = this.#capacities.get(symbol);
    if (capacity === undefined) {
      throw new ArgumentError({
        argument: 'symbol',
        expected: [...this.#capacities.keys()].join(' | '),
        actual: symbol,
      });
    }
    return capacity;
  }

  /** A tensor of 32-bit integers in the scalar block, set by the host before every step. */
  scalar(name: string, shape: readonly Dim[]): ProgramTensor {
    if (this.#slots.has(name)) {
      throw new ArgumentError({ argument: 'scalar', expected: 'a new name', actual: `${name}, which already exists` });
    }
    const numWords = this.#maxElements(name, shape);
    this.#slots.set(name, { name, wordOffset: this.#numWords, numWords });
    const storage = this.#newStorage('scalar', numWords * 4, scalarBufferIndex, this.#numWords * 4);
    this.#numWords += numWords;
    return { name, dtype: 'i32', shape, storage, byteOffset: 0 };
  }

  /** A tensor in its own buffer, which outlives the program and is bound by `name` in `prepare`. */
  external(name: string, usage: 'weights' | 'kv', dtype: DType, shape: readonly number[]): ProgramTensor {
    const existing = this.#externals.get(name);
    if (existing !== undefined) {
      const existingUsage = this.#buffers[existing.storage.buffer].usage;
      const expected = `${existingUsage} ${existing.dtype} ${formatShape(existing.shape)}`;
      const actual = `${usage} ${dtype} ${formatShape(shape)}`;
      if (actual !== expected) {
        throw new ShapeError({ op: 'external', rule: `second declaration of ${name}`, expected, actual });
      }
      return existing;
    }
    const sizeBytes = tensorBytes(dtype, shape);
    const buffer = this.#buffers.length;
    this.#buffers.push({ name, usage: usage satisfies BufferUsage, sizeBytes });
    const tensor = { name, dtype, shape, storage: this.#newStorage('external', sizeBytes, buffer, 0), byteOffset: 0 };
    this.#externals.set(name, tensor);
    return tensor;
  }

  /**
   * The same values under another shape.
   * @throws {ShapeError} when the number of elements differs, or rows are not whole blocks of the dtype
   */
  reshape(tensor: ProgramTensor, shape: readonly Dim[]): ProgramTensor {
    this.#checkOwned('reshape', tensor);
    this.#maxElements('reshape', shape);
    const { blockSize } = dtypeInfo(tensor.dtype);
    const rowLength = shape.at(-1) ?? 1;
    const isWholeBlocks = blockSize === 1 || (typeof rowLength === 'number' && rowLength % blockSize === 0);
    if (elementsKey(tensor.shape) !== elementsKey(shape) || !isWholeBlocks) {
      throw new ShapeError({
        op: 'reshape',
        rule: isWholeBlocks ? 'number of elements' : `rows of ${tensor.dtype}`,
        expected: isWholeBlocks ? formatShape(tensor.shape) : `a multiple of ${blockSize}`,
        actual: formatShape(shape),
      });
    }
    return { ...tensor, shape };
  }

  /** Rows `[begin, end)` of the first axis, sharing the memory. All axes must have fixed sizes. */
  rows(tensor: ProgramTensor, begin: number, end: number): ProgramTensor {
    this.#checkOwned('rows', tensor);
    const [numRows, ...rest] = tensor.shape;
    if (
      tensor.shape.some((dim) => typeof dim !== 'number') ||
      !Number.isSafeInteger(begin) ||
      !Number.isSafeInteger(end) ||
      !(begin >= 0 && begin <= end && end <= Number(numRows))
    ) {
      throw new ShapeError({
        op: 'rows',
        rule: `range of ${tensor.name}`,
        expected: `a range within fixed axes ${formatShape(tensor.shape)}`,
        actual: `[${begin}, ${end})`,
      });
    }
    const rowBytes = tensorBytes(tensor.dtype, rest as number[]);
    return { ...tensor, shape: [end - begin, ...rest], byteOffset: tensor.byteOffset + begin * rowBytes };
  }

  /** All records appended from now on belong to this layer in profiles; -1 for none. */
  setLayer(layer: number): void {
    this.#layer = layer;
  }

  /**
   * Appends a record and returns its outputs.
   * @param updated the tensors that the op updates in place, for outputs with `updates`
   * @throws {ShapeError | DTypeError | ArgumentError} when the op's contract is violated
   */
  append(
    op: string,
    inputs: OpInputs,
    attributes: Attributes = {},
    updated: Readonly<Record<string, ProgramTensor>> = {},
  ): Record<string, ProgramTensor> {
    const spec = opSpec(op);
    const present: Record<string, ProgramTensor> = {};
    for (const [name, tensor] of Object.entries(inputs)) if (tensor !== undefined) present[name] = tensor;
    for (const tensor of [...Object.values(present), ...Object.values(updated)]) this.#checkOwned(op, tensor);
    const inferred = inferOp(spec, present, attributes, updated);
    this.#checkUpdated(op, present, updated);
    const outputs: Record<string, ProgramTensor> = {};
    for (const [name, { dtype, shape }] of Object.entries(inferred.outputs)) {
      outputs[name] = updated[name] ?? this.#newActivation(`${op}.${this.#nameCounter++}.${name}`, dtype, shape);
    }
    this.#records.push({ spec, inputs: present, outputs, attributes: inferred.attributes, layer: this.#layer });
    return outputs;
  }

  /** Appends a record with one output and returns the output. */
  activation(op: string, inputs: OpInputs, attributes: Attributes = {}): ProgramTensor {
    const outputs = Object.values(this.append(op, inputs, attributes));
    const [first] = outputs;
    if (outputs.length !== 1 || first === undefined) {
      throw new ArgumentError({ argument: op, expected: 'an op with one output', actual: `${outputs.length} outputs` });
    }
    return first;
  }

  /** Ends a segment: the host is called with `name` before the next record runs. */
  boundary(name: string): void {
    this.#boundaries.push({ after: this.#records.length, name });
  }

  /** Keeps a tensor until the end of the run and lets the host read it. */
  output(name: string, tensor: ProgramTensor): void {
    this.#checkOwned('output', tensor);
    if (tensor.storage.kind === 'scalar') {
      throw new ArgumentError({ argument: `output ${name}`, expected: 'a computed tensor', actual: 'a scalar' });
    }
    if (this.#outputs.has(name)) {
      throw new ArgumentError({ argument: 'output', expected: 'a new name', actual: `${name}, which already exists` });
    }
    this.#outputs.set(name, tensor);
  }

  /** Plans the memory and returns the finished program. You can continue to use the builder and build again. */
  build(): Program {
    return planDraft({
      segments: this.#segments(),
      buffers: this.#buffers,
      symbols: this.#capacities,
      scalars: { slots: new Map(this.#slots), numWords: this.#numWords },
      outputs: this.#outputs,
    });
  }

  #maxElements(name: string, shape: readonly Dim[]): number {
    for (const dim of shape) if (typeof dim === 'string') this.capacity(dim);
    numElements(shape.filter((dim) => typeof dim === 'number')); // rejects invalid sizes
    const count = maxElements(shape, this.#capacities);
    if (!Number.isSafeInteger(count)) {
      throw new ShapeError({
        op: name,
        rule: 'number of elements',
        expected: 'at most 2^53 - 1',
        actual: formatShape(shape),
      });
    }
    return count;
  }

  #newActivation(name: string, dtype: DType, shape: readonly Dim[]): ProgramTensor {
    this.#maxElements(name, shape);
    const tensor = newActivation(name, dtype, shape, this.#capacities);
    this.#storages.add(tensor.storage);
    return tensor;
  }

  #newStorage(kind: DraftStorage['kind'], sizeBytes: number, buffer: number, byteOffset: number): DraftStorage {
    const storage = { kind, sizeBytes, buffer, byteOffset };
    this.#storages.add(storage);
    return storage;
  }

  /** Tensors of another builder refer to buffers that this program lacks. */
  #checkOwned(argument: string, { name, storage }: ProgramTensor): void {
    if (!this.#storages.has(storage)) {
      throw new ArgumentError({ argument, expected: 'tensors of this builder', actual: `${name} of another` });
    }
  }

  /** Tensors that an op updates must be writable and must not alias its other tensors. */
  #checkUpdated(
    op: string,
    inputs: Readonly<Record<string, ProgramTensor>>,
    updated: Readonly<Record<string, ProgramTensor>>,
  ): void {
    const others = Object.values(inputs);
    for (const [name, tensor] of Object.entries(updated)) {
      const { usage } = this.#buffers[tensor.storage.buffer];
      const argument = `${op}: output ${name}`;
      if (usage === 'weights' || usage === 'scalars') {
        throw new ArgumentError({ argument, expected: 'activation or kv memory', actual: `${usage} memory` });
      }
      const rival = others.find((other) => this.#overlap(tensor, other));
      if (rival !== undefined) {
        throw new ArgumentError({ argument, expected: 'separate memory', actual: `memory of ${rival.name}` });
      }
      others.push(tensor);
    }
  }

  #overlap(a: ProgramTensor, b: ProgramTensor): boolean {
    const endOf = ({ dtype, shape, byteOffset }: ProgramTensor): number =>
      byteOffset + tensorBytes(dtype, [maxElements(shape, this.#capacities)]);
    return a.storage === b.storage && a.byteOffset < endOf(b) && b.byteOffset < endOf(a);
  }

  #segments(): DraftSegment[] {
    const segments: DraftSegment[] = [];
    let begin = 0;
    for (const { after, name } of this.#boundaries) {
      segments.push({ records: this.#records.slice(begin, after), boundary: name });
      begin = after;
    }
    segments.push({ records: this.#records.slice(begin), boundary: undefined });
    return segments;
  }
}
