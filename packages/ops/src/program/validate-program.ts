/**
 * Checks a whole program: every record against its spec, every reference against its buffer, and the lifetime of every
 * byte of the arena. Programs from `ProgramBuilder` always pass, which tests check; other producers should validate
 * theirs.
 */
import { dtypeInfo, formatShape, ShapeError, tensorBytes, type DType } from '@winnow/tensor';
import { opSpec } from '../ops/registry.js';
import { maxElements } from '../spec/dims.js';
import { inferOp } from '../spec/infer-op.js';
import { arenaBufferIndex, scalarBufferIndex, type OpRecord, type Program, type TensorRef } from './program.js';

/** A range of arena bytes `[begin, end)` with values of the tensor `owner`. */
interface Region {
  begin: number;
  end: number;
  owner: string;
}

/** @throws {ShapeError | DTypeError | ArgumentError} naming the record and tensor that violate a rule */
export function validateProgram(program: Program): void {
  checkLayout(program);
  const arena: Region[] = [];
  for (const [index, record] of program.records.entries()) {
    const spec = opSpec(record.op);
    const where = `record ${index} (${record.op})`;
    const updated = Object.fromEntries(
      Object.entries(record.outputs).filter(([name]) => spec.outputs[name]?.updates === true),
    );
    const inferred = inferOp(spec, record.inputs, record.attributes, updated);
    for (const [name, type] of Object.entries(inferred.outputs)) {
      const output = record.outputs[name];
      if (
        output === undefined ||
        output.dtype !== type.dtype ||
        formatShape(output.shape) !== formatShape(type.shape)
      ) {
        const actual = output === undefined ? 'nothing' : `${output.dtype} ${formatShape(output.shape)}`;
        throw refusal(where, `output ${name}`, `${type.dtype} ${formatShape(type.shape)}`, actual);
      }
    }
    for (const [name, value] of Object.entries(inferred.attributes)) {
      if (record.attributes[name] !== value) {
        throw refusal(where, `attribute ${name}`, String(value), String(record.attributes[name]));
      }
    }
    for (const name of Object.keys(record.outputs)) {
      if (!Object.hasOwn(inferred.outputs, name))
        throw refusal(where, 'outputs', Object.keys(inferred.outputs).join(', '), name);
    }
    for (const tensor of [...Object.values(record.inputs), ...Object.values(record.outputs)]) {
      checkBounds(program, where, tensor);
    }
    for (const tensor of [...Object.values(record.inputs), ...Object.values(updated)]) {
      if (tensor.buffer === arenaBufferIndex) checkHeld(program, arena, where, tensor);
    }
    checkOutputs(program, where, record);
    for (const tensor of Object.values(record.outputs)) {
      if (tensor.buffer === arenaBufferIndex) write(arena, program, tensor);
    }
  }
  for (const [name, tensor] of program.outputs) {
    checkBounds(program, `output ${name}`, tensor);
    if (tensor.buffer === arenaBufferIndex) checkHeld(program, arena, `output ${name}`, tensor);
  }
  checkSegments(program);
}

/** Checks the two buffers of the program itself, the scalar slots in the first, and `peakBytes`. */
function checkLayout({ buffers, scalars, symbols, peakBytes }: Program): void {
  const expected = 'scalars, activation, then weights and kv';
  const usages = buffers.map(({ usage }) => usage);
  if (
    usages[scalarBufferIndex] !== 'scalars' ||
    usages[arenaBufferIndex] !== 'activation' ||
    usages.slice(arenaBufferIndex + 1).some((usage) => usage !== 'weights' && usage !== 'kv')
  ) {
    throw refusal('buffers', 'usages', expected, usages.join(', '));
  }
  const scalarBytes = buffers[scalarBufferIndex].sizeBytes;
  if (scalarBytes !== scalars.numWords * 4) {
    throw refusal('buffers', 'bytes of the scalar block', String(scalars.numWords * 4), String(scalarBytes));
  }
  const arenaBytes = buffers[arenaBufferIndex].sizeBytes;
  if (peakBytes !== scalarBytes + arenaBytes) {
    throw refusal('program', 'peak bytes', String(scalarBytes + arenaBytes), String(peakBytes));
  }
  let at = 0;
  for (const { name, wordOffset, numWords } of [...scalars.slots.values()].sort(
    (a, b) => a.wordOffset - b.wordOffset,
  )) {
    if (wordOffset < at || !(numWords >= 0)) {
      throw refusal('scalars', `words of ${name}`, `a range from ${at}`, `${numWords} words from ${wordOffset}`);
    }
    at = wordOffset + numWords;
  }
  if (at > scalars.numWords) throw refusal('scalars', 'words', String(scalars.numWords), String(at));
  for (const [symbol, capacity] of symbols) {
    if (scalars.slots.get(symbol)?.numWords !== 1 || !(capacity >= 0)) {
      throw refusal('symbols', symbol, 'a capacity and one word of the scalar block', `capacity ${capacity}`);
    }
  }
}

/** Bytes of a tensor with every symbol at its capacity. */
function maxBytes(program: Program, { dtype, shape }: TensorRef): number {
  return tensorBytes(dtype, [maxElements(shape, program.symbols)]);
}

function checkBounds(program: Program, where: string, tensor: TensorRef): void {
  for (const dim of tensor.shape) {
    if (typeof dim === 'string' && !program.symbols.has(dim)) {
      throw refusal(where, `symbol of ${tensor.name}`, [...program.symbols.keys()].join(' | '), dim);
    }
  }
  const buffer = program.buffers[tensor.buffer];
  const end = tensor.byteOffset + maxBytes(program, tensor);
  const alignment = alignmentOf(tensor.dtype);
  if (tensor.byteOffset % alignment !== 0) {
    throw refusal(where, `offset of ${tensor.name}`, `a multiple of ${alignment}`, String(tensor.byteOffset));
  }
  if (buffer === undefined || !(tensor.byteOffset >= 0) || !(end <= buffer.sizeBytes)) {
    const available = buffer === undefined ? 'no such buffer' : `${buffer.sizeBytes} bytes in ${buffer.name}`;
    throw refusal(where, `end of ${tensor.name}`, available, `${end} bytes`);
  }
}

/** Plain numbers are aligned to their size for typed arrays and vector loads; blocks need no alignment. */
function alignmentOf(dtype: DType): number {
  const { blockSize, blockBytes } = dtypeInfo(dtype);
  return blockSize === 1 ? blockBytes : 1;
}

/** Every byte of the tensor must hold values of that tensor: written before, and not overwritten since. */
function checkHeld(program: Program, arena: readonly Region[], where: string, tensor: TensorRef): void {
  const end = tensor.byteOffset + maxBytes(program, tensor);
  let at = tensor.byteOffset;
  for (const region of arena) {
    if (region.end <= at || region.begin >= end) continue;
    if (region.begin > at) break;
    if (region.owner !== tensor.name) {
      throw refusal(where, `bytes of ${tensor.name}`, 'its own values', `values of ${region.owner}`);
    }
    at = region.end;
    if (at >= end) break;
  }
  if (at < end) throw refusal(where, `bytes of ${tensor.name}`, 'values written before', `nothing at byte ${at}`);
}

function write(arena: Region[], program: Program, tensor: TensorRef): void {
  const begin = tensor.byteOffset;
  const end = begin + maxBytes(program, tensor);
  const kept: Region[] = [];
  for (const region of arena) {
    if (region.end <= begin || region.begin >= end) {
      kept.push(region);
      continue;
    }
    if (region.begin < begin) kept.push({ begin: region.begin, end: begin, owner: region.owner });
    if (region.end > end) kept.push({ begin: end, end: region.end, owner: region.owner });
  }
  kept.push({ begin, end, owner: tensor.name });
  kept.sort((a, b) => a.begin - b.begin);
  arena.splice(0, arena.length, ...kept);
}

function checkOutputs(program: Program, where: string, record: OpRecord): void {
  const spec = opSpec(record.op);
  const outputs = Object.entries(record.outputs);
  for (const [position, [name, output]] of outputs.entries()) {
    const usage = program.buffers[output.buffer]?.usage;
    if (output.buffer === scalarBufferIndex || usage === 'weights') {
      throw refusal(where, `output ${name}`, 'activation or kv memory', `${usage} memory`);
    }
    for (const [inputName, input] of Object.entries(record.inputs)) {
      const inPlace = spec.outputs[name]?.mayAlias === inputName && input.byteOffset === output.byteOffset;
      if (!inPlace && overlaps(program, output, input)) {
        throw refusal(where, `output ${name}`, 'separate memory', `memory of input ${inputName}`);
      }
    }
    for (const [otherName, other] of outputs.slice(position + 1)) {
      if (overlaps(program, output, other)) {
        throw refusal(where, `output ${name}`, 'separate memory', `memory of output ${otherName}`);
      }
    }
  }
}

function overlaps(program: Program, a: TensorRef, b: TensorRef): boolean {
  return (
    a.buffer === b.buffer &&
    a.byteOffset < b.byteOffset + maxBytes(program, b) &&
    b.byteOffset < a.byteOffset + maxBytes(program, a)
  );
}

function checkSegments(program: Program): void {
  let at = 0;
  for (const { begin, end } of program.segments) {
    if (begin !== at || end < begin) throw refusal('segments', 'range', `a range from ${at}`, `[${begin}, ${end})`);
    at = end;
  }
  if (at !== program.records.length) {
    throw refusal('segments', 'records covered', String(program.records.length), String(at));
  }
}

function refusal(op: string, rule: string, expected: string, actual: string): ShapeError {
  return new ShapeError({ op, rule, expected, actual });
}
