/** Eight rows at arbitrary addresses, which become the pointers `p0` to `p7`. */
import { axpyRows } from '../memory-layout.ts';
import { addressIn, names, times } from './emit.ts';

export { axpyRows };
export const pointers: readonly string[] = names('p', axpyRows);
export const rowPointers: string = times(axpyRows, (row) => `let p${row} = ${addressIn('rows', row)} + offset;`);
export const rowSums: readonly string[] = names('s', axpyRows);
