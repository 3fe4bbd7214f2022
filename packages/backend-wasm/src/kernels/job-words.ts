/** Words of jobs: the job block, and the records of jobs of the backend itself, which have one matrix each. */
import { encodeJob } from '@winnow/ops';
import { jobBlock, jobWords } from './layout.generated.js';

/** The matrix of such a record. */
interface JobMatrix {
  readonly ggmlType: number;
  readonly address: number;
  readonly numRows: number;
  readonly numColumns: number;
}

export const matrixRecordWords: number = encodeJob(0, 0, 0, [0, 0]).length;

export function matrixRecord(opcode: number, { ggmlType, address, numRows, numColumns }: JobMatrix): number[] {
  return encodeJob(opcode, ggmlType, address, [numRows, numColumns]);
}

/** The words of a job block; omitted ones are 0. */
export function jobOf(parts: Partial<Record<keyof typeof jobBlock, number>>): Int32Array {
  const words = new Int32Array(jobWords);
  for (const [name, value] of Object.entries(parts)) words[jobBlock[name as keyof typeof jobBlock] / 4] = value;
  return words;
}
