/** Producers and consumers of the tensors of a program, for rules that move or replace records. */
import { formatShape } from '@winnow/tensor';
import {
  tensorsOf,
  type DraftProgram,
  type DraftRecord,
  type DraftStorage,
  type DraftTensor,
} from '../program/draft-program.js';

/** Whether two references have the same values and shape. */
export function isSameTensor(a: DraftTensor, b: DraftTensor): boolean {
  return (
    a.storage.kind === b.storage.kind &&
    (a.storage === b.storage || (a.storage.kind !== 'activation' && a.storage.buffer === b.storage.buffer)) &&
    a.storage.byteOffset + a.byteOffset === b.storage.byteOffset + b.byteOffset &&
    a.dtype === b.dtype &&
    formatShape(a.shape) === formatShape(b.shape)
  );
}

export class RecordGraph {
  readonly #indexOf = new Map<DraftRecord, number>();
  readonly #segmentOf = new Map<DraftRecord, number>();
  readonly #readers = new Map<DraftStorage, DraftRecord[]>();
  readonly #writers = new Map<DraftStorage, DraftRecord[]>();
  readonly #outputs: ReadonlySet<DraftStorage>;

  constructor({ segments, outputs }: DraftProgram) {
    this.#outputs = new Set([...outputs.values()].map(({ storage }) => storage));
    for (const [segment, { records }] of segments.entries()) {
      for (const record of records) {
        this.#indexOf.set(record, this.#indexOf.size);
        this.#segmentOf.set(record, segment);
        for (const { storage } of Object.values(record.inputs)) note(this.#readers, storage, record);
        for (const { storage } of Object.values(record.outputs)) note(this.#writers, storage, record);
      }
    }
  }

  /** The only record that computes an activation, if it computes all of it. */
  producerOf({ storage, byteOffset, shape }: DraftTensor): DraftRecord | undefined {
    const [producer, ...others] = this.#writers.get(storage) ?? [];
    if (storage.kind !== 'activation' || producer === undefined || others.length > 0 || byteOffset !== 0)
      return undefined;
    const computed = Object.values(producer.outputs).find((output) => output.storage === storage);
    return computed !== undefined && formatShape(computed.shape) === formatShape(shape) ? producer : undefined;
  }

  /** All records that read a tensor's memory, in order. */
  readersOf({ storage }: DraftTensor): readonly DraftRecord[] {
    return this.#readers.get(storage) ?? [];
  }

  /** Whether the host may read a tensor after the run. */
  isOutput({ storage }: DraftTensor): boolean {
    return this.#outputs.has(storage);
  }

  /**
   * Whether `record` computes the same at the position of `other` in the same segment, since its inputs are not written
   * in between.
   */
  canMove(record: DraftRecord, other: DraftRecord): boolean {
    if (this.#segmentOf.get(record) !== this.#segmentOf.get(other)) return false;
    const places = [this.#at(record), this.#at(other)];
    const [begin, end] = [Math.min(...places), Math.max(...places)];
    return tensorsOf({ inputs: record.inputs, outputs: {} }).every(({ storage }) =>
      (this.#writers.get(storage) ?? []).every((writer) => this.#at(writer) < begin || this.#at(writer) > end),
    );
  }

  /** Whether a record comes before another one. */
  isBefore(record: DraftRecord, other: DraftRecord): boolean {
    return this.#at(record) < this.#at(other);
  }

  #at(record: DraftRecord): number {
    return this.#indexOf.get(record) as number;
  }
}

function note(records: Map<DraftStorage, DraftRecord[]>, storage: DraftStorage, record: DraftRecord): void {
  const known = records.get(storage);
  if (known === undefined) records.set(storage, [record]);
  else if (known.at(-1) !== record) known.push(record);
}
