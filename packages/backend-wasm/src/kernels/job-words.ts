/** Words of jobs: the job block, and the records of jobs of the backend itself, which have one matrix each. */
import { jobBlock, jobWords } from './layout.generated.js';

/** The matrix of such a record. */
interface JobMatrix {
  readonly ggmlType: number;
  readonly address: number;
  readonly numRows: number;
  readonly numColumns: number;
}

export const matrixRecordWords = 9;

/** A record as `encodeProgram` of `@winnow/ops` writes it, of no layer, with one tensor of rank 2 and no attributes. */
export function matrixRecord(opcode: number, { ggmlType, address, numRows, numColumns }: JobMatrix): number[] {
  return [opcode, matrixRecordWords, -1, 2 + 1, ggmlType, address, 0, numRows, numColumns];
}

/** The words of a job block; what is not given is 0. */
export function jobOf(parts: Partial<Record<keyof typeof jobBlock, number>>): Int32Array {
  const words = new Int32Array(jobWords);
  for (const [name, value] of Object.entries(parts)) words[jobBlock[name as keyof typeof jobBlock] / 4] = value;
  return words;
}
