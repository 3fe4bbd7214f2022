/** Eight rows that lie anywhere: their addresses become the pointers `p0` to `p7`. */
import { addressIn, names, times } from './emit.ts';

export const numRows = 8;
export const pointers: readonly string[] = names('p', numRows);
export const rowPointers: string = times(numRows, (row) => `let p${row} = ${addressIn('rows', row)} + offset;`);
export const rowSums: readonly string[] = names('s', numRows);
