/**
 * One op in a program that detects every kind of out-of-bounds access. Inputs are between guard bands; outputs are in
 * memory that an earlier record filled with NaN, between canaries that are read back; only the output may change.
 *
 * The arena around an output of S bytes follows from order and lifetime alone: canary, hole, canary of S bytes each are
 * written in this order, the holes die before the op, and the planner assigns each hole to an output. For an output
 * that aliases an input, that input is in the middle instead.
 */
import { opSpec, ProgramBuilder, type Attributes, type Program, type ProgramTensor, type TensorRef } from '@winnow/ops';
import { sizeOf } from '@winnow/tensor';
import { canaryValues, declareGuarded, usageOf, type GuardedBuffer } from '../guarded-memory.js';
import type { CaseTensor, KernelData } from '../kernel-case.js';
import { floats, integersOf, ints, product } from '../values.js';

/** A case as a program with its memory and scalars. */
export interface KernelProgram {
  readonly program: Program;
  readonly buffers: readonly GuardedBuffer[];
  /** Values of scalar slots and symbols by name. */
  readonly scalars: ReadonlyMap<string, Int32Array>;
  /** Canaries by output name. */
  readonly canaries: ReadonlyMap<string, Float32Array>;
}

/** Whether the case has axes that can be symbols. */
export function hasDynamicSizes({ inputs }: KernelData): boolean {
  return Object.values(inputs).some(({ tokenAxis }) => tokenAxis !== undefined);
}

/** Alignment of arena tensors, to which their sizes are rounded up. */
const arenaAlignment = 64;
/** How much larger the capacity of `T` is than its value. */
const spareTokens = 3;

/**
 * @param isDynamic whether sizes are symbols and inputs are in the arena and the scalar block
 * @param numGuardBlocks blocks of each guard band: other numbers give other alignments
 */
export function buildKernelProgram(
  op: string,
  attributes: Attributes,
  data: KernelData,
  isDynamic: boolean,
  numGuardBlocks: number,
): KernelProgram {
  const assembly = { op, attributes, data, isDynamic, numGuardBlocks };
  return new ProgramAssembler(assembly).assemble(new ProgramAssembler(assembly).outputBytes());
}

interface Assembly {
  readonly op: string;
  readonly attributes: Attributes;
  readonly data: KernelData;
  readonly isDynamic: boolean;
  readonly numGuardBlocks: number;
}

class ProgramAssembler {
  readonly #assembly: Assembly;
  readonly #numTokens: number;
  readonly #b: ProgramBuilder;
  readonly #buffers: GuardedBuffer[] = [];
  readonly #scalars = new Map<string, Int32Array>();
  readonly #canaries = new Map<string, Float32Array>();
  readonly #shared = new Map<string, ProgramTensor>();
  readonly #inputs: Record<string, ProgramTensor> = {};
  /** Inputs that an output may alias: they come right before the op. */
  readonly #late = new Map<string, CaseTensor>();

  constructor(assembly: Assembly) {
    this.#assembly = assembly;
    this.#numTokens = tokensOf(assembly.data);
    this.#b = new ProgramBuilder(assembly.isDynamic ? { T: this.#numTokens + spareTokens } : {});
    if (assembly.isDynamic) this.#scalars.set('T', Int32Array.of(this.#numTokens));
  }

  /** The bytes of each output in the arena, of a program without canaries, which is not built. */
  outputBytes(): ReadonlyMap<string, number> {
    const capacity = this.#numTokens + spareTokens;
    const sizes = new Map<string, number>();
    for (const [name, { dtype, shape }] of this.#append(undefined)) {
      const numValues = product(shape.map((dim) => (typeof dim === 'number' ? dim : capacity)));
      sizes.set(name, Math.ceil(Math.max(1, sizeOf(dtype, numValues)) / arenaAlignment) * arenaAlignment);
    }
    return sizes;
  }

  assemble(outputBytes: ReadonlyMap<string, number>): KernelProgram {
    const outputs = this.#append(outputBytes);
    // a record behind that of the op: whoever reads an attribute that the op does not have finds no zero there
    this.#constant('behind', new Float32Array(arenaAlignment / 4));
    for (const [name, tensor] of outputs) this.#b.output(name, tensor);
    return { program: this.#b.build(), buffers: this.#buffers, scalars: this.#scalars, canaries: this.#canaries };
  }

  /** Adds the op and all before it. @returns its outputs that are not updated inputs */
  #append(outputBytes: ReadonlyMap<string, number> | undefined): ReadonlyMap<string, ProgramTensor> {
    const { op, attributes, data } = this.#assembly;
    const b = this.#b;
    this.#addInputs();
    const updated: Record<string, ProgramTensor> = {};
    for (const [name, tensor] of Object.entries(data.updated ?? {})) updated[name] = this.#declare(name, 'kv', tensor);
    const holes = this.#addHoles(outputBytes);
    const rows = this.#firstRow();
    for (const hole of holes) {
      // their last use: the holes open here; 64 bytes of result fit nowhere below them
      b.activation('gather-rows', { x: b.reshape(hole, [Number(hole.shape[1]) / 16, 16]), rows });
    }
    const outputs = Object.entries(b.append(op, this.#inputs, attributes, updated));
    return new Map(outputs.filter(([name]) => !(name in updated)));
  }

  #addInputs(): void {
    const { op, data, isDynamic } = this.#assembly;
    const aliased = new Set(isDynamic ? Object.values(opSpec(op).outputs).map(({ mayAlias }) => mayAlias) : []);
    for (const [name, tensor] of Object.entries(data.inputs)) {
      const usage = usageOf(name);
      const isArena = isDynamic && tensor.dtype === 'f32' && tensor.tokenAxis !== undefined;
      const isScalar = isDynamic && tensor.dtype === 'i32' && usage === 'weights';
      if (isArena && aliased.has(name)) this.#late.set(name, tensor);
      else if (isArena) this.#inputs[name] = this.#gather(name, tensor);
      else if (isScalar) this.#inputs[name] = this.#scalar(name, symbolic(tensor), integersOf(tensor));
      else this.#inputs[name] = this.#declare(name, usage, tensor);
    }
  }

  /** For each output in the arena, adds a hole of its size between canaries, or the input that it aliases. */
  #addHoles(outputBytes: ReadonlyMap<string, number> | undefined): ProgramTensor[] {
    const { op, attributes } = this.#assembly;
    const holes: ProgramTensor[] = [];
    for (const [name, { updates, mayAlias = '', when }] of Object.entries(opSpec(op).outputs)) {
      if (updates === true || (when !== undefined && attributes[when] !== true)) continue;
      const numFloats = (outputBytes?.get(name) ?? arenaAlignment) / 4;
      const source = this.#late.get(mayAlias);
      if (outputBytes !== undefined) this.#addCanary(`canary before ${name}`, numFloats);
      if (source !== undefined) this.#inputs[mayAlias] = this.#gather(mayAlias, source);
      else holes.push(this.#constant(`poison.${numFloats}`, new Float32Array(numFloats).fill(NaN)));
      if (outputBytes !== undefined) this.#addCanary(`canary after ${name}`, numFloats);
    }
    return holes;
  }

  #addCanary(name: string, length: number): void {
    const values = canaryValues(length);
    this.#canaries.set(name, values);
    this.#b.output(name, this.#constant(`canary.${length}`, values));
  }

  #declare(name: string, usage: 'weights' | 'kv', tensor: CaseTensor): ProgramTensor {
    const declared = declareGuarded(this.#b, name, usage, tensor, this.#assembly.numGuardBlocks);
    this.#buffers.push(declared.buffer);
    return declared.tensor;
  }

  #scalar(name: string, shape: readonly (number | string)[], values: Int32Array): ProgramTensor {
    this.#scalars.set(name, values);
    return this.#b.scalar(name, shape);
  }

  #once(name: string, make: () => ProgramTensor): ProgramTensor {
    const tensor = this.#shared.get(name) ?? make();
    this.#shared.set(name, tensor);
    return tensor;
  }

  #firstRow(): ProgramTensor {
    return this.#once('first row', () => this.#declare('first row', 'weights', ints([1], [0])));
  }

  /** A constant in the arena. */
  #constant(name: string, values: Float32Array): ProgramTensor {
    const x = this.#once(name, () => this.#declare(name, 'weights', floats([1, values.length], values)));
    return this.#b.activation('gather-rows', { x, rows: this.#firstRow() });
  }

  /** A tensor with a token axis in the arena. */
  #gather(name: string, tensor: CaseTensor): ProgramTensor {
    const rowLength = product(tensor.shape.filter((_, axis) => axis !== tensor.tokenAxis));
    const x = this.#declare(name, 'weights', { ...tensor, shape: [this.#numTokens, rowLength] });
    const everyToken = Int32Array.from({ length: this.#numTokens }, (_, t) => t);
    const rows = this.#once('every token', () => this.#scalar('every token', ['T'], everyToken));
    return this.#b.reshape(this.#b.activation('gather-rows', { x, rows }), symbolic(tensor));
  }
}

/** Canaries adjacent to an output in the arena, which proves that the layout is as described above. */
export function canaryNeighbors(
  { program, canaries }: KernelProgram,
  output: string,
): { before: boolean; after: boolean } {
  const ref = program.outputs.get(output) as TensorRef;
  const sizeOfCanary = (canaries.get(`canary before ${output}`) as Float32Array).length * 4;
  const starts = [...canaries].map(([name, values]) => [
    (program.outputs.get(name) as TensorRef).byteOffset,
    values.length * 4,
  ]);
  return {
    before: starts.some(([begin, sizeBytes]) => begin + sizeBytes === ref.byteOffset),
    after: starts.some(([begin]) => begin === ref.byteOffset + sizeOfCanary),
  };
}

function tokensOf({ inputs }: KernelData): number {
  for (const { shape, tokenAxis } of Object.values(inputs)) if (tokenAxis !== undefined) return shape[tokenAxis];
  return 0;
}

function symbolic({ shape, tokenAxis }: CaseTensor): (number | string)[] {
  return shape.map((dim, axis) => (axis === tokenAxis ? 'T' : dim));
}
