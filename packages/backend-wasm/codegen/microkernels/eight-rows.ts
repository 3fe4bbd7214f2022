/** Eight rows that lie anywhere: their addresses become the pointers `p0` to `p7`. */
import { addressIn, names, times, type Lines } from './emit.ts';

export const numRows = 8;
export const pointers: Lines = names('p', numRows);
export const rowPointers: Lines = times(numRows, (row) => `let p${row} = ${addressIn('rows', row)} + offset;`);
export const rowSums: Lines = names('s', numRows);
