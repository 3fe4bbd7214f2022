/**
 * Splits a program whose weights are in several memories into one part per memory and consecutive stages. Results of a
 * stage are copied to the memory of the stage that needs them.
 */
import { arenaBufferIndex, opSpec, scalarBufferIndex, type OpRecord, type Program, type TensorRef } from '@winnow/ops';
import { tensorBytes } from '@winnow/tensor';
import { capacityOf } from '../kernels/record-shapes.js';
import { ArenaPieces, type PieceCopy } from './arena-pieces.js';

/** The records of one memory, in order. Scalars and arena are laid out as in the whole program. */
export interface ProgramPart<Memory> {
  readonly memory: Memory;
  readonly program: Program;
  /** Indices of its records in the whole program. */
  readonly records: readonly number[];
  /** First records of stages that follow records in another memory. */
  readonly stageStarts: ReadonlySet<number>;
}

/** Records `[begin, end)` of a part that are consecutive in the whole program. */
export interface Stage {
  readonly part: number;
  readonly begin: number;
  readonly end: number;
  /** The boundary after the stage. */
  readonly boundary: string | undefined;
  /** Copies from other memories before the stage. */
  readonly copies: readonly PieceCopy[];
}

export interface SplitProgram<Memory> {
  readonly parts: readonly ProgramPart<Memory>[];
  readonly stages: readonly Stage[];
  /** The part that computes each output, for outputs in the arena. */
  readonly outputs: ReadonlyMap<string, number>;
  /** Copies at the end, for outputs that several parts wrote. */
  readonly lastCopies: readonly PieceCopy[];
}

/**
 * @param homeOf the memory of a weight or a cache
 * @param first the memory of programs without any
 * @param smallBytes weights of at most this size are copied to where they are needed
 */
export function splitProgram<Memory>(
  program: Program,
  homeOf: (buffer: number) => Memory,
  first: Memory,
  smallBytes: number,
): SplitProgram<Memory> {
  const memories = memoriesOfRecords(program, homeOf, first, smallBytes);
  const kinds = [...new Set(memories)];
  if (kinds.length <= 1) return wholeProgram(program, kinds[0] ?? first);

  const records = kinds.map((): number[] => []);
  const starts = kinds.map(() => new Set<number>());
  const segments = kinds.map((): { begin: number; end: number; boundary: undefined }[] => []);
  const stages: Stage[] = [];
  const pieces = new ArenaPieces();
  for (const { begin, end, boundary } of program.segments) {
    for (let from = begin; from < end || (begin === end && from === begin);) {
      const part = Math.max(0, kinds.indexOf(memories[from] as Memory));
      let to = from;
      while (to < end && memories[to] === memories[from]) to++;
      const own = records[part];
      const partBegin = own.length;
      if (to > from) starts[part].add(partBegin);
      const copies: PieceCopy[] = [];
      for (let index = from; index < to; index++) {
        own.push(index);
        trace(program, program.records[index], part, pieces, copies);
      }
      segments[part].push({ begin: partBegin, end: own.length, boundary: undefined });
      const name = to === end ? boundary : undefined;
      stages.push({ part, begin: partBegin, end: own.length, boundary: name, copies });
      from = Math.max(to, from + 1);
    }
  }
  const outputs = new Map<string, number>();
  const lastCopies: PieceCopy[] = [];
  for (const [name, tensor] of program.outputs) {
    if (tensor.buffer !== arenaBufferIndex) continue;
    const [begin, end] = rangeOf(program, tensor);
    const part = pieces.writerOf(begin) ?? 0;
    outputs.set(name, part);
    pieces.read(part, begin, end, lastCopies);
  }
  const parts = kinds.map((memory, part) => ({
    memory,
    records: records[part],
    stageStarts: starts[part],
    program: { ...program, records: records[part].map((index) => program.records[index]), segments: segments[part] },
  }));
  return { parts, stages, outputs, lastCopies };
}

function wholeProgram<Memory>(program: Program, memory: Memory): SplitProgram<Memory> {
  const records = program.records.map((_, index) => index);
  return {
    parts: [{ memory, program, records, stageStarts: new Set() }],
    stages: program.segments.map((segment) => ({ ...segment, part: 0, copies: [] })),
    outputs: new Map([...program.outputs.keys()].map((name) => [name, 0])),
    lastCopies: [],
  };
}

/**
 * The memory of each record: the one with most of its bytes. Small weights do not count; records without others stay in
 * the current memory.
 */
function memoriesOfRecords<Memory>(
  program: Program,
  homeOf: (buffer: number) => Memory,
  first: Memory,
  smallBytes: number,
): Memory[] {
  const wishes = program.records.map((record): Memory | undefined => {
    const bytes = new Map<Memory, number>();
    for (const buffer of externalsOf(record)) {
      const { usage, sizeBytes } = program.buffers[buffer];
      if (usage === 'weights' && sizeBytes <= smallBytes) continue;
      const home = homeOf(buffer);
      bytes.set(home, (bytes.get(home) ?? 0) + sizeBytes);
    }
    let wish: Memory | undefined;
    for (const [memory, size] of bytes) if (wish === undefined || size > (bytes.get(wish) as number)) wish = memory;
    return wish;
  });
  const homeOfAny = (): Memory => {
    const [anyBuffer] = program.records.flatMap((record) => [...externalsOf(record)]);
    return anyBuffer === undefined ? first : homeOf(anyBuffer);
  };
  let current = wishes.find((wish) => wish !== undefined) ?? homeOfAny();
  return wishes.map((wish) => (current = wish ?? current));
}

/** Weights and caches of a record. */
export function externalsOf(record: OpRecord): Set<number> {
  const buffers = new Set<number>();
  for (const name in record.inputs) buffers.add((record.inputs[name] as TensorRef).buffer);
  for (const name in record.outputs) buffers.add((record.outputs[name] as TensorRef).buffer);
  buffers.delete(scalarBufferIndex);
  buffers.delete(arenaBufferIndex);
  return buffers;
}

/** Tracks the activations of a record. */
function trace(
  program: Program,
  { op, inputs, outputs }: OpRecord,
  part: number,
  pieces: ArenaPieces,
  copies: PieceCopy[],
): void {
  const { outputs: specs } = opSpec(op);
  const updated = Object.entries(outputs).flatMap(([name, tensor]) => (specs[name]?.updates === true ? [tensor] : []));
  for (const tensor of [...Object.values(inputs), ...updated]) {
    if (tensor.buffer === arenaBufferIndex) pieces.read(part, ...rangeOf(program, tensor), copies);
  }
  for (const tensor of Object.values(outputs)) {
    if (tensor.buffer === arenaBufferIndex) pieces.write(part, ...rangeOf(program, tensor), tensor);
  }
}

function rangeOf(program: Program, tensor: TensorRef): [number, number] {
  const { dtype, byteOffset } = tensor;
  return [byteOffset, byteOffset + tensorBytes(dtype, capacityOf(program, tensor))];
}
