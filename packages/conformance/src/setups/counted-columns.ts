/** Counts of columns: none, some, the ends of vectors and of work items, all; for one row and for several. */
export const countedColumns: readonly (readonly [numRows: number, count: number, length: number])[] = [
  [1, 0, 17],
  [1, 1, 5],
  [1, 1030, 2055],
  [3, 6, 31],
  [3, 1024, 1027],
  [5, 33, 33],
];
