/** Rotates rows by a Hadamard matrix per power-of-two piece, in place once a row is scaled into y. Work items: rows. */
import { x, y } from '../operands/hadamard.generated';
import { nextItems } from '../runtime/threads';
import { scaleRow } from './pointwise';

export function hadamard(): void {
  const length = x.dim;
  const piece = length & -length;
  const factor = <f32>(1 / Math.sqrt(<f64>piece));
  for (let row = nextItems(1); row < x.numRows; row = nextItems(1)) {
    const to = y.rowAt(row);
    scaleRow(x.rowAt(row), to, factor, length);
    for (let at = to; at < to + ((<usize>length) << 2); at += (<usize>piece) << 2) rotate(at, piece);
  }
}

/** Fast Walsh-Hadamard transform: butterflies at distances 1, 2, 4, ... */
function rotate(at: usize, piece: i32): void {
  for (let half = 1; half < min<i32>(piece, 4); half <<= 1) {
    const apart = (<usize>half) << 2;
    for (let i = 0; i < piece; i++) {
      if ((i & half) !== 0) continue;
      const p = at + ((<usize>i) << 2);
      const a = load<f32>(p);
      const b = load<f32>(p + apart);
      store<f32>(p, a + b);
      store<f32>(p + apart, a - b);
    }
  }
  for (let half = 4; half < piece; half <<= 1) {
    const apart = (<usize>half) << 2;
    for (let first = 0; first < piece; first += 2 * half) {
      const end = at + ((<usize>(first + half)) << 2);
      for (let p = at + ((<usize>first) << 2); p < end; p += 16) {
        const a = v128.load(p);
        const b = v128.load(p + apart);
        v128.store(p, f32x4.add(a, b));
        v128.store(p + apart, f32x4.sub(a, b));
      }
    }
  }
}
