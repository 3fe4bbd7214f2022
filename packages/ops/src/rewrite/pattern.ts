/** Patterns of records: an op, and for each input either a name for the tensor or the pattern of its producer. */
import type { DraftRecord, DraftTensor } from '../program/draft-program.js';
import { isSameTensor, type RecordGraph } from './record-graph.js';

export interface RecordPattern {
  readonly op: string;
  /** All inputs of the record. The same name in several places requires the same tensor. */
  readonly inputs: Readonly<Record<string, string | RecordPattern>>;
}

export interface PatternMatch {
  /** The records before the last one, whose results have no other consumers. */
  readonly inner: readonly DraftRecord[];
  /** By name in the pattern. */
  readonly tensors: Readonly<Record<string, DraftTensor>>;
}

/** Matches records that end in `last`. All of them can move to its position. */
export function matchPattern(pattern: RecordPattern, last: DraftRecord, graph: RecordGraph): PatternMatch | undefined {
  const inner: DraftRecord[] = [];
  const tensors: Record<string, DraftTensor> = {};
  const matches = ({ op, inputs }: RecordPattern, record: DraftRecord): boolean => {
    const names = Object.keys(record.inputs);
    if (record.spec.name !== op || names.length !== Object.keys(inputs).length) return false;
    return names.every((name) => matchesInput(inputs[name], record.inputs[name]));
  };
  const matchesInput = (wanted: string | RecordPattern | undefined, tensor: DraftTensor): boolean => {
    if (wanted === undefined) return false;
    if (typeof wanted === 'string') {
      const known = (tensors[wanted] ??= tensor);
      return isSameTensor(known, tensor);
    }
    const producer = graph.producerOf(tensor);
    if (producer === undefined || graph.isOutput(tensor) || graph.readersOf(tensor).length !== 1) return false;
    inner.push(producer);
    return graph.canMove(producer, last) && matches(wanted, producer);
  };
  return matches(pattern, last) ? { inner, tensors } : undefined;
}
