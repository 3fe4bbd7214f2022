export function unpackRow(dtype: i32, group: usize, row: i32, to: usize, count: i32): void {
  unreachable();
}
