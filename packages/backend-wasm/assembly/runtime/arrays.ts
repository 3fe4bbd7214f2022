/** Arrays of 4-byte numbers at an address. */

export function intAt(array: usize, index: i32): i32 {
  return load<i32>(array + ((<usize>index) << 2));
}
export function setInt(array: usize, index: i32, value: i32): void {
  store<i32>(array + ((<usize>index) << 2), value);
}
export function floatAt(array: usize, index: i32): f32 {
  return load<f32>(array + ((<usize>index) << 2));
}
export function setFloat(array: usize, index: i32, value: f32): void {
  store<f32>(array + ((<usize>index) << 2), value);
}
