/** States of the online softmax of rows (token, head): maximum, sum, weighted sum of the values. */

/** Merges the parts of a row into its first part. */
export function mergeRows(m: usize, l: usize, o: usize, numParts: i32, rows: i32, row: i32, valueDim: i32): void {
  for (let part = 1; part < numParts; part++) mergeState(m, l, o, row, m, l, o, part * rows + row, valueDim);
}

/** Merges a row of one list of states into a row of another. */
export function mergeState(
  m: usize,
  l: usize,
  o: usize,
  row: i32,
  sourceM: usize,
  sourceL: usize,
  sourceO: usize,
  sourceRow: i32,
  valueDim: i32,
): void {
  const sourceMax = load<f32>(sourceM + ((<usize>sourceRow) << 2));
  if (sourceMax === -Infinity) return;
  const mAt = m + ((<usize>row) << 2);
  const lAt = l + ((<usize>row) << 2);
  const targetMax = load<f32>(mAt);
  const top = max<f32>(targetMax, sourceMax);
  const targetScale = targetMax === -Infinity ? <f32>0 : <f32>Math.exp(<f64>targetMax - <f64>top);
  const sourceScale = <f32>Math.exp(<f64>sourceMax - <f64>top);
  store<f32>(mAt, top);
  store<f32>(lAt, load<f32>(lAt) * targetScale + load<f32>(sourceL + ((<usize>sourceRow) << 2)) * sourceScale);
  let to = o + ((<usize>row * <usize>valueDim) << 2);
  let from = sourceO + ((<usize>sourceRow * <usize>valueDim) << 2);
  for (let i = 0; i < valueDim; i++, to += 4, from += 4) {
    store<f32>(to, load<f32>(to) * targetScale + load<f32>(from) * sourceScale);
  }
}

/** `y = o / l` of one row; zeros where no key was seen. */
export function finishRow(m: usize, l: usize, o: usize, row: i32, y: usize, valueDim: i32): void {
  const sum = load<f32>(l + ((<usize>row) << 2));
  const factor: f32 = sum === 0 ? 0 : 1 / sum;
  const at = (<usize>row * <usize>valueDim) << 2;
  for (let i = at; i < at + ((<usize>valueDim) << 2); i += 4) store<f32>(y + i, load<f32>(o + i) * factor);
}
