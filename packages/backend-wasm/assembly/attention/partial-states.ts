/** Partial states of split-KV attention: maxima and sums `[splits, T, N]`, weighted sums of values `[splits, T, N, D]`. */

/** Merges the state of a row into that of another. */
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

/** `y = o / l` of one query; zeros where no key was seen. */
export function finishState(l: f32, o: usize, y: usize, valueDim: i32): void {
  const factor: f32 = l === 0 ? 0 : 1 / l;
  for (let i: usize = 0; i < (<usize>valueDim) << 2; i += 4) store<f32>(y + i, load<f32>(o + i) * factor);
}
