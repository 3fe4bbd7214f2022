/** A record that runs on the host with its reference, over buffers of a backend. */
import type { BufferHandle } from '../backend/backend.js';
import type { OpRecord, Program, TensorRef } from '../program/program.js';
import { scalarBufferIndex } from '../program/program.js';
import { bindRecord, TensorViews, type BoundRecord } from '../reference/bind-record.js';
import type { KernelBackend } from './dispatch.js';

export interface HostRecordOptions {
  readonly backend: Pick<KernelBackend, 'view' | 'read' | 'write'>;
  readonly program: Program;
  /** Weights, caches and shared activations by buffer index. */
  readonly handles: ReadonlyMap<number, BufferHandle>;
  /** The scalar block of the step. */
  readonly words: Int32Array;
}

/** A tensor of the record in a buffer, with its bytes on the host. */
interface Operand {
  readonly tensor: TensorRef;
  readonly handle: BufferHandle;
  readonly isOutput: boolean;
  readonly sizeBytes: number;
  bytes: Uint8Array | undefined;
}

export class HostRecord {
  readonly #options: HostRecordOptions;
  readonly #record: OpRecord;
  #operands: Operand[] = [];
  #bound: { readonly record: BoundRecord; readonly tensors: TensorViews } | undefined;

  constructor(record: OpRecord, options: HostRecordOptions) {
    this.#record = record;
    this.#options = options;
  }

  async run(): Promise<void> {
    const { record, tensors } = await this.#bind();
    tensors.resize(this.#options.words);
    record.run();
    const { backend } = this.#options;
    for (const { tensor, handle, isOutput, bytes } of this.#operands) {
      if (isOutput && backend.view(handle) === undefined) {
        await backend.write(handle, tensor.byteOffset, bytes as Uint8Array);
      }
    }
  }

  /** Work of the last run. */
  work(): { readonly flops: number; readonly bytes: number } {
    return this.#bound?.record.work() ?? { flops: 0, bytes: 0 };
  }

  /** Rebinds the kernel if the backend's memory has moved; reads buffers that the host cannot access. */
  async #bind(): Promise<{ readonly record: BoundRecord; readonly tensors: TensorViews }> {
    const { backend, program, words } = this.#options;
    if (this.#bound === undefined || this.#operands.some((operand) => this.#hasMoved(operand))) {
      this.#operands = [];
      const scalars = new Uint8Array(words.buffer, words.byteOffset, words.byteLength);
      const tensors = new TensorViews(program, (tensor, sizeBytes) =>
        tensor.buffer === scalarBufferIndex
          ? scalars.subarray(tensor.byteOffset, tensor.byteOffset + sizeBytes)
          : this.#bytesOf(tensor, sizeBytes),
      );
      this.#bound = { record: bindRecord(this.#record, tensors), tensors };
    }
    for (const { tensor, handle, bytes } of this.#operands) {
      if (backend.view(handle) === undefined) await backend.read(handle, tensor.byteOffset, bytes as Uint8Array);
    }
    return this.#bound;
  }

  #bytesOf(tensor: TensorRef, sizeBytes: number): Uint8Array {
    const handle = this.#options.handles.get(tensor.buffer) as BufferHandle;
    const isOutput = Object.values(this.#record.outputs).includes(tensor);
    const operand: Operand = { tensor, handle, isOutput, sizeBytes, bytes: undefined };
    operand.bytes = this.#viewOf(operand) ?? new Uint8Array(sizeBytes);
    this.#operands.push(operand);
    return operand.bytes;
  }

  #viewOf({ tensor, handle, sizeBytes }: Operand): Uint8Array | undefined {
    return this.#options.backend.view(handle)?.subarray(tensor.byteOffset, tensor.byteOffset + sizeBytes);
  }

  #hasMoved(operand: Operand): boolean {
    const view = this.#viewOf(operand);
    const { bytes } = operand;
    return view !== undefined && (view.buffer !== bytes?.buffer || view.byteOffset !== bytes.byteOffset);
  }
}
