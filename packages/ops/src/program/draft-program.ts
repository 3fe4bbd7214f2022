/**
 * A program before its activations have arena offsets: the builder collects it and rewrites change it. Planning assigns
 * offsets; `draftOf` discards them.
 */
import { invariant, tensorBytes, type DType } from '@winnow/tensor';
import { opSpec } from '../ops/registry.js';
import { maxElements, type Dim } from '../spec/dims.js';
import type { Attributes, OpSpec } from '../spec/op-spec.js';
import { alignUp, arenaAlignment, planActivations } from './plan-activations.js';
import {
  arenaBufferIndex,
  type OpRecord,
  type Program,
  type ProgramBuffer,
  type Segment,
  type TensorRef,
} from './program.js';
import type { ScalarLayout } from './scalars.js';

/** Memory of tensors: a buffer, words of the scalar block, or a range of the arena that planning assigns. */
export interface DraftStorage {
  readonly kind: 'external' | 'scalar' | 'activation';
  readonly sizeBytes: number;
  readonly buffer: number;
  /** Offset in the buffer; meaningless for activations. */
  readonly byteOffset: number;
}

export interface DraftTensor {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly Dim[];
  readonly storage: DraftStorage;
  /** Offset in the storage. */
  readonly byteOffset: number;
}

export interface DraftRecord {
  readonly spec: OpSpec;
  readonly inputs: Readonly<Record<string, DraftTensor>>;
  readonly outputs: Readonly<Record<string, DraftTensor>>;
  readonly attributes: Attributes;
  readonly layer: number;
}

/** Records that run without the host, and the boundary after them. */
export interface DraftSegment {
  readonly records: readonly DraftRecord[];
  readonly boundary: string | undefined;
}

export interface DraftProgram {
  readonly segments: readonly DraftSegment[];
  /** As in a program. The sizes of the scalar block and the arena are ignored. */
  readonly buffers: readonly ProgramBuffer[];
  readonly symbols: ReadonlyMap<string, number>;
  readonly scalars: ScalarLayout;
  readonly outputs: ReadonlyMap<string, DraftTensor>;
}

/** A tensor that a record computes. */
export function newActivation(
  name: string,
  dtype: DType,
  shape: readonly Dim[],
  symbols: ReadonlyMap<string, number>,
): DraftTensor {
  const numBytes = tensorBytes(dtype, [maxElements(shape, symbols)]);
  const sizeBytes = alignUp(Math.max(numBytes, 1), arenaAlignment);
  const storage: DraftStorage = { kind: 'activation', sizeBytes, buffer: arenaBufferIndex, byteOffset: 0 };
  return { name, dtype, shape, storage, byteOffset: 0 };
}

/** Plans the memory of a draft. */
export function planDraft(draft: DraftProgram): Program {
  const records = draft.segments.flatMap((segment) => segment.records);
  const placeOf = new ArenaPlaces(records, draft.outputs.values()).merge();
  const places = [...new Set(placeOf.values())];
  const plan = planActivations(places);
  const offsetOf = new Map(places.map((place, index) => [place, plan.offsets[index]]));
  const toRef = ({ name, dtype, shape, storage, byteOffset }: DraftTensor): TensorRef => {
    const place = placeOf.get(storage);
    const base = place === undefined ? storage.byteOffset : (offsetOf.get(place) as number);
    return { name, dtype, shape, buffer: storage.buffer, byteOffset: base + byteOffset };
  };
  const scalarBytes = draft.scalars.numWords * 4;
  const [scalars, arena, ...externals] = draft.buffers as [ProgramBuffer, ProgramBuffer, ...ProgramBuffer[]];
  return {
    records: records.map(({ spec, inputs, outputs, attributes, layer }): OpRecord => {
      return { op: spec.name, inputs: mapValues(inputs, toRef), outputs: mapValues(outputs, toRef), attributes, layer };
    }),
    buffers: [{ ...scalars, sizeBytes: scalarBytes }, { ...arena, sizeBytes: plan.sizeBytes }, ...externals],
    symbols: draft.symbols,
    scalars: draft.scalars,
    segments: segmentsOf(draft),
    outputs: new Map([...draft.outputs].map(([name, tensor]) => [name, toRef(tensor)])),
    peakBytes: plan.sizeBytes + scalarBytes,
  };
}

/** The draft of a program. Activations with the same name are one tensor, defined by its first record. */
export function draftOf(program: Program): DraftProgram {
  const { buffers, symbols, scalars, outputs } = program;
  const activations = new Map<string, { readonly storage: DraftStorage; readonly base: number }>();
  const externals = buffers.map(({ usage, sizeBytes }, buffer): DraftStorage => ({
    ...{ kind: usage === 'scalars' ? 'scalar' : 'external', sizeBytes, buffer, byteOffset: 0 },
  }));
  const toTensor = ({ name, dtype, shape, buffer, byteOffset }: TensorRef): DraftTensor => {
    if (buffer !== arenaBufferIndex) {
      return { name, dtype, shape, storage: externals[buffer], byteOffset };
    }
    const found = activations.get(name);
    invariant(found !== undefined, `a record computes ${name}`);
    return { name, dtype, shape, storage: found.storage, byteOffset: byteOffset - found.base };
  };
  const toRecord = ({ op, inputs, outputs: written, attributes, layer }: OpRecord): DraftRecord => {
    const spec = opSpec(op);
    for (const [output, { name, dtype, shape, buffer, byteOffset }] of Object.entries(written)) {
      if (buffer !== arenaBufferIndex || spec.outputs[output]?.updates === true) continue;
      activations.set(name, { storage: newActivation(name, dtype, shape, symbols).storage, base: byteOffset });
    }
    return { spec, inputs: mapValues(inputs, toTensor), outputs: mapValues(written, toTensor), attributes, layer };
  };
  const records = program.records.map(toRecord);
  return {
    segments: program.segments.map(({ begin, end, boundary }) => ({ records: records.slice(begin, end), boundary })),
    ...{ buffers, symbols, scalars },
    outputs: new Map([...outputs].map(([name, tensor]) => [name, toTensor(tensor)])),
  };
}

/** Activations that share one range of the arena: a storage and those that alias it in turn. */
interface Place {
  readonly sizeBytes: number;
  readonly firstRecord: number;
  lastRecord: number;
}

/** Lifetimes of activations, and which of them can share memory. */
class ArenaPlaces {
  readonly #records: readonly DraftRecord[];
  readonly #lastRecord = new Map<DraftStorage, number>();
  readonly #placeOf = new Map<DraftStorage, Place>();

  constructor(records: readonly DraftRecord[], outputs: Iterable<DraftTensor>) {
    this.#records = records;
    for (const [index, record] of records.entries()) {
      for (const { storage } of tensorsOf(record)) this.#lastRecord.set(storage, index);
    }
    // outputs stay until the end of the run
    for (const { storage } of outputs) this.#lastRecord.set(storage, records.length);
  }

  /** Lets outputs alias inputs that die in the same record. Returns the place of every activation. */
  merge(): ReadonlyMap<DraftStorage, Place> {
    for (const [index, record] of this.#records.entries()) {
      for (const [name, { storage, dtype }] of Object.entries(record.outputs)) {
        if (storage.kind !== 'activation' || this.#placeOf.has(storage)) continue;
        const lastRecord = this.#lastRecord.get(storage) as number;
        const source = record.inputs[record.spec.outputs[name]?.mayAlias ?? ''];
        const place = source && this.#placeToTake(source, storage, dtype, record, index);
        if (place !== undefined) place.lastRecord = lastRecord;
        this.#placeOf.set(storage, place ?? { sizeBytes: storage.sizeBytes, firstRecord: index, lastRecord });
      }
    }
    return this.#placeOf;
  }

  /** The place of `source` if its values are not needed after the record. */
  #placeToTake(
    source: DraftTensor,
    { sizeBytes }: DraftStorage,
    dtype: DType,
    { inputs }: DraftRecord,
    index: number,
  ): Place | undefined {
    const place = this.#placeOf.get(source.storage);
    const isSame = place?.sizeBytes === sizeBytes && source.byteOffset === 0 && source.dtype === dtype;
    // another input of the same record would be read after it was overwritten
    const numReaders = Object.values(inputs).filter(({ storage }) => this.#placeOf.get(storage) === place).length;
    return isSame && place.lastRecord === index && numReaders === 1 ? place : undefined;
  }
}

/** All tensors of a record. */
export function tensorsOf({ inputs, outputs }: Pick<DraftRecord, 'inputs' | 'outputs'>): DraftTensor[] {
  return [...Object.values(inputs), ...Object.values(outputs)];
}

function segmentsOf({ segments }: DraftProgram): Segment[] {
  let end = 0;
  return segments.map(({ records, boundary }) => {
    const begin = end;
    end += records.length;
    return { begin, end, boundary };
  });
}

function mapValues<A, B>(record: Readonly<Record<string, A>>, map: (value: A) => B): Record<string, B> {
  return Object.fromEntries(Object.entries(record).map(([name, value]) => [name, map(value)]));
}
