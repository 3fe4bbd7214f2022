/**
 * Weights that `assembly/gemm/repack.ts` interleaves in place. A buffer records what is repacked in it, so that its bytes can be read
 * as they were written, and so that programs that need another layout can share it.
 */
import type { OpRecord, Program, TensorRef } from '@winnow/ops';
import { dtypeInfo, tensorBytes, type DType } from '@winnow/tensor';
import { instantiate, type WasmModule } from '../host/web-assembly.js';
import { jobOf, matrixRecord, matrixRecordWords } from '../kernels/job-words.js';
import { repackedDTypes, traitsOf, type RepackOrder } from '../kernels/kernel-traits.js';
import {
  controlWords,
  groupSize,
  jobOpcodes,
  jobWords,
  neuronColumns,
  planEntry,
  planWords,
  refusedAux,
} from '../kernels/layout.generated.js';
import { capacityOf, product } from '../kernels/record-shapes.js';
import type { BufferPlace } from './buffer-places.js';
import type { Heap } from './heap.js';

/** A weight matrix inside a program buffer. */
export interface RepackedTensor {
  readonly buffer: number;
  readonly byteOffset: number;
  readonly dtype: DType;
  readonly numRows: number;
  readonly numColumns: number;
  /** `rows`: the rows of each group of four are interleaved; `neurons`: the three rows of a neuron form one row here. */
  readonly order: RepackOrder;
}

const opcodes: Readonly<Record<RepackOrder, { readonly repack: number; readonly restore: number }>> = {
  rows: { repack: jobOpcodes.repack, restore: jobOpcodes.restore },
  neurons: { repack: jobOpcodes.repackNeurons, restore: jobOpcodes.restoreNeurons },
};

/** Whether a sparse op, which does not need repacked weights, runs on 8-bit activations. */
export function isInt8Sparse(record: OpRecord): boolean {
  return traitsOf(record.op).int8NeedsRepacking !== true && hasInt8Weight(record);
}

/** Whether a matmul runs on 8-bit activations once its weights are repacked. */
export function isInt8Matmul(record: OpRecord): boolean {
  return traitsOf(record.op).int8NeedsRepacking === true && hasInt8Weight(record);
}

function hasInt8Weight({ op, inputs }: OpRecord): boolean {
  return traitsOf(op).int8DTypes?.includes((inputs['weight'] as TensorRef).dtype) === true;
}

/** The tensor of a record that its kernel can read repacked. */
export function repackedRefOf({ op, inputs }: OpRecord): TensorRef | undefined {
  const { repackable } = traitsOf(op);
  return repackable && inputs[repackable.input];
}

export function keyOf({ buffer, byteOffset, dtype, shape }: TensorRef): string {
  return `${buffer} ${byteOffset} ${dtype} ${shape.join('x')}`;
}

/**
 * The weights of all 8-bit matmuls, except those that some record reads in another way: as another shape, or by an op
 * that cannot read repacked rows. The weights of `hostBuffers` stay unchanged.
 */
export function repackableTensors(program: Program, hostBuffers: ReadonlySet<string>): Map<string, RepackedTensor> {
  const candidates = new Map<string, RepackedTensor>();
  for (const record of program.records) {
    const ref = repackedRefOf(record);
    if (ref === undefined) continue;
    if (hasNeuronOrder(program, record)) {
      const { buffer, byteOffset, dtype } = ref;
      const [numRows, , width] = capacityOf(program, ref) as [number, number, number];
      candidates.set(keyOf(ref), { buffer, byteOffset, dtype, numRows, numColumns: 3 * width, order: 'neurons' });
      continue;
    }
    if (!isInt8Matmul(record)) continue;
    const shape = capacityOf(program, ref);
    const numColumns = shape[shape.length - 1] as number;
    const numRows = product(shape.slice(0, -1));
    // groups must not reach from one expert into the next
    const isWhole = shape.length === 2 || (shape[1] as number) % groupSize === 0;
    if (program.buffers[ref.buffer]?.usage !== 'weights' || numRows < groupSize || !isWhole) continue;
    const { buffer, byteOffset, dtype } = ref;
    candidates.set(keyOf(ref), { buffer, byteOffset, dtype, numRows, numColumns, order: 'rows' });
  }
  const remove = (ref: TensorRef): void => {
    const end = ref.byteOffset + tensorBytes(ref.dtype, capacityOf(program, ref));
    for (const [key, tensor] of candidates) {
      const tensorEnd = tensor.byteOffset + bytesOfTensor(tensor);
      if (tensor.buffer !== ref.buffer || tensor.byteOffset >= end || ref.byteOffset >= tensorEnd) continue;
      candidates.delete(key);
    }
  };
  for (const [key, { buffer }] of candidates) {
    if (hostBuffers.has(program.buffers[buffer]?.name ?? '')) candidates.delete(key);
  }
  for (const record of program.records) {
    const readable = repackedRefOf(record);
    for (const ref of [...Object.values(record.inputs), ...Object.values(record.outputs)]) {
      if (ref !== readable || !candidates.has(keyOf(ref))) remove(ref);
    }
  }
  for (const ref of program.outputs.values()) remove(ref);
  return candidates;
}

/** Whether the weight of a record can be ordered as `assembly/ffn/repack-neurons.ts` has it. */
function hasNeuronOrder(program: Program, { op, inputs }: OpRecord): boolean {
  const { repackable } = traitsOf(op);
  if (repackable?.order !== 'neurons') return false;
  const { buffer, dtype, shape } = inputs[repackable.input] as TensorRef;
  const isWhole = (shape.at(-1) as number) % neuronColumns === 0;
  return repackedDTypes.neurons.includes(dtype) && isWhole && program.buffers[buffer]?.usage === 'weights';
}

function bytesOfTensor({ dtype, numRows, numColumns }: RepackedTensor): number {
  return tensorBytes(dtype, [numRows, numColumns]);
}

/** A tensor to be repacked or restored, in the buffer at `address`. */
export interface RepackStep {
  readonly tensor: RepackedTensor;
  readonly address: number;
  readonly isRepacking: boolean;
}

interface BufferStep extends RepackStep {
  readonly buffer: BufferPlace;
}

/** The steps after which exactly `tensors` are repacked in the buffers of a program. */
export function repackSteps(
  tensors: readonly RepackedTensor[],
  buffers: ReadonlyMap<number, BufferPlace>,
): readonly BufferStep[] {
  const steps: BufferStep[] = [];
  const isSame = (a: RepackedTensor, b: RepackedTensor): boolean =>
    a.byteOffset === b.byteOffset &&
    a.dtype === b.dtype &&
    a.numRows === b.numRows &&
    a.numColumns === b.numColumns &&
    a.order === b.order;
  for (const [index, buffer] of buffers) {
    if (buffer.repacked.length === 0 && !tensors.some((tensor) => tensor.buffer === index)) continue;
    const { address } = buffer;
    const wanted = tensors.filter((tensor) => tensor.buffer === index);
    for (const tensor of buffer.repacked) {
      if (!wanted.some((other) => isSame(other, tensor))) steps.push({ tensor, address, isRepacking: false, buffer });
    }
    for (const tensor of wanted) {
      if (!buffer.repacked.some((other) => isSame(other, tensor)))
        steps.push({ tensor, address, isRepacking: true, buffer });
    }
  }
  return steps;
}

/** A job in memory, to be freed after it ran. */
interface RepackJob {
  readonly region: number;
  readonly address: number;
  /** Updates the buffers after the job ran. Returns the steps whose weights cannot be repacked; these are unchanged. */
  finish(): readonly BufferStep[];
}

/** Writes a job with one record per step. */
export function writeRepackJob(steps: readonly BufferStep[], heap: Heap, numThreads: number): RepackJob {
  const { region, address, planAt } = writeJob(steps, heap, numThreads);
  return {
    region,
    address,
    finish() {
      const plan = heap.words(planAt, steps.length * planWords);
      const refused = steps.filter(
        ({ isRepacking }, index) => isRepacking && plan[index * planWords + planEntry.aux / 4 + refusedAux] !== 0,
      );
      for (const step of steps) {
        const { buffer, tensor, isRepacking } = step;
        if (refused.includes(step)) continue;
        const others = buffer.repacked.filter((other) => other !== tensor);
        buffer.repacked = isRepacking ? [...others, tensor] : others;
      }
      return refused;
    },
  };
}

function writeJob(
  steps: readonly RepackStep[],
  heap: Heap,
  numThreads: number,
): { readonly region: number; readonly address: number; readonly planAt: number } {
  const localBytes =
    64 + Math.max(...steps.map(({ tensor }) => groupSize * tensorBytes(tensor.dtype, [tensor.numColumns])));
  const local = Math.ceil(localBytes / 64) * 64;
  const wordsBytes = steps.length * matrixRecordWords * 4;
  const planBytes = steps.length * planWords * 4;
  const region = heap.allocate(jobWords * 4 + wordsBytes + planBytes + 64 + local * numThreads, 'repacking of weights');
  const wordsAt = region + jobWords * 4;
  const planAt = wordsAt + wordsBytes;
  const localAt = Math.ceil((planAt + planBytes) / 64) * 64;
  const words = heap.words(wordsAt, steps.length * matrixRecordWords);
  const plan = heap.words(planAt, steps.length * planWords);
  for (const [index, { tensor, address, isRepacking }] of steps.entries()) {
    const at = address + tensor.byteOffset;
    const { repack, restore } = opcodes[tensor.order];
    const opcode = isRepacking ? repack : restore;
    const ggmlType = dtypeInfo(tensor.dtype).ggmlType;
    const { numRows, numColumns } = tensor;
    words.set(matrixRecord(opcode, { ggmlType, address: at, numRows, numColumns }), index * matrixRecordWords);
    plan[index * planWords] = wordsAt + index * matrixRecordWords * 4;
  }
  heap.words(region, jobWords).set(jobOf({ plan: planAt, local: localAt, localBytes: local }));
  return { region, address: region, planAt };
}

/** Repacks or restores on the calling thread, while no job runs. */
export function repackAlone(steps: readonly RepackStep[], heap: Heap, module: WasmModule, now: () => number): void {
  const { region, address } = writeJob(steps, heap, 1);
  heap.words(controlWords.job, 4).set([address, 0, steps.length, 0]);
  instantiate({ module }, heap.memory, now).runAlone();
  heap.free(region);
}
