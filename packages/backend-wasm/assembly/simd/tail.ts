/** Partial vectors at the end of a row, so that pointwise kernels are written once, over whole vectors. */

/** Loads `count` of four floats, with zeros in the other lanes. */
export function loadTail(at: usize, count: i32): v128 {
  let v = f32x4.splat(0);
  if (count > 0) v = f32x4.replace_lane(v, 0, load<f32>(at));
  if (count > 1) v = f32x4.replace_lane(v, 1, load<f32>(at, 4));
  if (count > 2) v = f32x4.replace_lane(v, 2, load<f32>(at, 8));
  if (count > 3) v = f32x4.replace_lane(v, 3, load<f32>(at, 12));
  return v;
}

/** The same for any `count`; loads at most four floats. */
/* @inline */ export function loadUpTo4(at: usize, count: i32): v128 {
  return count >= 4 ? v128.load(at) : loadTail(at, count);
}

/** Stores the first `count` lanes, all of them if `count` is 4 or more. */
export function storeUpTo4(at: usize, v: v128, count: i32): void {
  if (count >= 4) v128.store(at, v);
  else storeTail(at, v, count);
}

export function storeTail(at: usize, v: v128, count: i32): void {
  if (count > 0) store<f32>(at, f32x4.extract_lane(v, 0));
  if (count > 1) store<f32>(at, f32x4.extract_lane(v, 1), 4);
  if (count > 2) store<f32>(at, f32x4.extract_lane(v, 2), 8);
  if (count > 3) store<f32>(at, f32x4.extract_lane(v, 3), 12);
}
