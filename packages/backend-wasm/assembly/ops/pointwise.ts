/**
 * Pointwise ops: add, multiply, scale, soft-cap, activation, glu. Work items: runs of elements, or of the first columns of a
 * row when the op has a column count.
 */
import * as Activation from '../operands/activation.generated';
import * as Add from '../operands/add.generated';
import * as Glu from '../operands/glu.generated';
import * as Multiply from '../operands/multiply.generated';
import * as Scale from '../operands/scale.generated';
import * as SoftCap from '../operands/soft-cap.generated';
import { countRows, lastDim } from '../runtime/record';
import { nextItems } from '../runtime/threads';
import { loadTail, storeTail } from '../simd/tail';
import { exp4, fma, tanh4 } from '../simd/vector';

/** Elements of a work item. */
const UNIT: i32 = 1024;

const ADD: i32 = 0;
const ACTIVATION: i32 = 1;
const GLU: i32 = 2;
const SOFT_CAP: i32 = 3;
const MULTIPLY: i32 = 4;
const SCALE: i32 = 5;
const CLAMPED_GLU: i32 = 6;

export function add(): void {
  run(ADD, 0, Add.a.address, Add.b.address, Add.y.address, Add.a.numElements, 0);
}
export function multiply(): void {
  run(MULTIPLY, 0, Multiply.a.address, Multiply.b.address, Multiply.y.address, Multiply.a.numElements, 0);
}
export function scale(): void {
  const from = Scale.x.address;
  run(SCALE, 0, from, from, Scale.y.address, Scale.x.numElements, Scale.attributes.factor);
}
export function softCap(): void {
  const from = SoftCap.x.address;
  run(SOFT_CAP, 0, from, from, SoftCap.y.address, SoftCap.x.numElements, SoftCap.attributes.cap);
}
export function activation(): void {
  const from = Activation.x.address;
  const to = Activation.y.address;
  const kind = Activation.attributes.kind;
  if (Activation.count.isPresent) runColumns(ACTIVATION, kind, from, from, to, Activation.count.address);
  else run(ACTIVATION, kind, from, from, to, Activation.x.numElements, 0);
}
export function glu(): void {
  const limit = Glu.attributes.limit;
  if (limit > 0) {
    const kind = Glu.attributes.kind;
    return run(CLAMPED_GLU, kind, Glu.gate.address, Glu.up.address, Glu.y.address, Glu.gate.numElements, limit);
  }
  plainGlu();
}
/** `glu` without a limit, also for ops whose only attribute in common with it is the first, `kind`. */
export function plainGlu(): void {
  const kind = Glu.attributes.kind;
  const a = Glu.gate.address;
  const b = Glu.up.address;
  if (Glu.count.isPresent) runColumns(GLU, kind, a, b, Glu.y.address, Glu.count.address);
  else run(GLU, kind, a, b, Glu.y.address, Glu.gate.numElements, 0);
}

/* @inline */ function run(op: i32, kind: i32, a: usize, b: usize, y: usize, total: i32, number: f32): void {
  for (let begin = nextItems(UNIT); begin < total; begin = nextItems(UNIT)) {
    applyTo(op, kind, a, b, y, number, begin, min<i32>(total, begin + UNIT));
  }
}

/** Computes the columns below the count; the last run of a row zeros the others. */
/* @inline */ function runColumns(op: i32, kind: i32, a: usize, b: usize, y: usize, countAt: usize): void {
  // x of activation and gate of glu are both the first operand
  const numColumns = lastDim(Activation.x.index);
  const count = min<i32>(load<i32>(countAt), numColumns);
  const perRow = max<i32>(1, (count + UNIT - 1) / UNIT);
  const numUnits = countRows(Activation.x.index) * perRow;
  for (let unit = nextItems(1); unit < numUnits; unit = nextItems(1)) {
    const run = unit % perRow;
    const row = <usize>(unit / perRow) * ((<usize>numColumns) << 2);
    applyTo(op, kind, a + row, b + row, y + row, 0, run * UNIT, min<i32>(count, run * UNIT + UNIT));
    if (run + 1 === perRow) memory.fill(y + row + ((<usize>count) << 2), 0, (<usize>(numColumns - count)) << 2);
  }
}

/** Applies the activation `kind` to `count` numbers in place. */
export function activateRow(kind: i32, x: usize, count: i32): void {
  applyTo(ACTIVATION, kind, x, x, x, 0, 0, count);
}

/** Computes elements `[begin, end)`; inlined, so that every op gets a specialized copy. */
/* @inline */ function applyTo(op: i32, kind: i32, a: usize, b: usize, y: usize, cap: f32, begin: i32, end: i32): void {
  let i = begin;
  for (; i + 4 <= end; i += 4) {
    const at = (<usize>i) << 2;
    v128.store(y + at, apply(op, kind, v128.load(a + at), v128.load(b + at), cap));
  }
  const at = (<usize>i) << 2;
  storeTail(y + at, apply(op, kind, loadTail(a + at, end - i), loadTail(b + at, end - i), cap), end - i);
}

/* @inline */ function apply(op: i32, kind: i32, a: v128, b: v128, number: f32): v128 {
  if (op === ADD) return f32x4.add(a, b);
  if (op === MULTIPLY) return f32x4.mul(a, b);
  if (op === SCALE) return f32x4.mul(a, f32x4.splat(number));
  if (op === GLU) return f32x4.mul(activate(kind, a), b);
  if (op === ACTIVATION) return activate(kind, a);
  const bound = f32x4.splat(number);
  if (op === CLAMPED_GLU) {
    const alpha = f32x4.splat(Glu.attributes.alpha);
    const gate = f32x4.div(activate(kind, f32x4.mul(alpha, f32x4.min(a, bound))), alpha);
    return f32x4.mul(gate, f32x4.add(f32x4.max(f32x4.neg(bound), f32x4.min(b, bound)), f32x4.splat(1)));
  }
  return f32x4.mul(bound, tanh4(f32x4.div(a, bound)));
}

/** `kind(x)` of four numbers. */
export function activate(kind: i32, x: v128): v128 {
  const one = f32x4.splat(1);
  if (kind === Activation.KIND_SILU) return f32x4.div(x, f32x4.add(one, exp4(f32x4.neg(x))));
  if (kind === Activation.KIND_GELU_TANH) {
    // 0.5 * (1 + tanh(u)) = 1 / (1 + exp(-2 u)), without cancellation where tanh is near -1
    const cubic = fma(f32x4.mul(f32x4.splat(0.044715), f32x4.mul(x, x)), x, x);
    const u = f32x4.mul(f32x4.splat(-1.5957691216057308), cubic);
    return f32x4.div(x, f32x4.add(one, exp4(u)));
  }
  if (kind === Activation.KIND_RELU) return v128.bitselect(f32x4.splat(0), x, f32x4.le(x, f32x4.splat(0)));
  if (kind === Activation.KIND_RELU2)
    return v128.bitselect(f32x4.splat(0), f32x4.mul(x, x), f32x4.le(x, f32x4.splat(0)));
  if (kind === Activation.KIND_GELU_ERF) {
    let y = f32x4.replace_lane(x, 0, geluErf(f32x4.extract_lane(x, 0)));
    y = f32x4.replace_lane(y, 1, geluErf(f32x4.extract_lane(x, 1)));
    y = f32x4.replace_lane(y, 2, geluErf(f32x4.extract_lane(x, 2)));
    return f32x4.replace_lane(y, 3, geluErf(f32x4.extract_lane(x, 3)));
  }
  return f32x4.div(one, f32x4.add(one, exp4(f32x4.neg(x)))); // sigmoid
}

/**
 * `0.5 x erfc(-x / sqrt 2)` in f64. erfc by the Chebyshev fit of W. Press et al., Numerical Recipes in C, 2nd edition,
 * section 6.2: relative error below 1.2e-7 everywhere.
 */
function geluErf(x: f32): f32 {
  if (x === -Infinity) return NaN;
  const z = <f64>x * -0.7071067811865476;
  const magnitude = abs<f64>(z);
  const t = 1 / (1 + 0.5 * magnitude);
  let p = 0.17087277;
  p = -0.82215223 + t * p;
  p = 1.48851587 + t * p;
  p = -1.13520398 + t * p;
  p = 0.27886807 + t * p;
  p = -0.18628806 + t * p;
  p = 0.09678418 + t * p;
  p = 0.37409196 + t * p;
  p = 1.00002368 + t * p;
  p = -1.26551223 + t * p;
  const tail = t * Math.exp(-magnitude * magnitude + p);
  return <f32>(0.5 * <f64>x * (z >= 0 ? tail : 2 - tail));
}

/** `to = from * scale`, `count` floats. */
export function scaleRow(from: usize, to: usize, scale: f32, count: i32): void {
  let i = 0;
  const factor = f32x4.splat(scale);
  for (; i + 4 <= count; i += 4, from += 16, to += 16) v128.store(to, f32x4.mul(v128.load(from), factor));
  for (; i < count; i++, from += 4, to += 4) store<f32>(to, load<f32>(from) * scale);
}
