import { FLAG_REUSE } from '../runtime/layout.generated';
import { addressOf, attributeF, attributeI, aux, dim, hasFlag } from '../runtime/record';
import { phaseBarrier, takeUnits } from '../runtime/threads';

/**
 * Tensors: x, positions, frequencies, y. Units: tokens. Angles in f64; the table of cosines and sines `[T, F, 2]` in
 * f64 at aux 0 is computed by the first rope of a program and used by all that have the same positions and frequencies.
 */
export function rope(): void {
  const numTokens = dim(0, 0);
  const numHeads = dim(0, 1);
  const headDim = dim(0, 2);
  const numPairs = dim(2, 0);
  const positions = addressOf(1);
  const frequencies = addressOf(2);
  const isNeighbours = attributeI(0) === 0;
  const amplitude = <f64>attributeF(1);
  const table = aux(0);
  const tableRow = (<usize>numPairs) << 4;
  if (!hasFlag(FLAG_REUSE)) {
    for (let t = takeUnits(1); t < numTokens; t = takeUnits(1)) {
      let at = table + <usize>t * tableRow;
      const position = <f64>load<i32>(positions + ((<usize>t) << 2));
      for (let i: usize = 0; i < <usize>numPairs; i++, at += 16) {
        const angle = position * <f64>load<f32>(frequencies + (i << 2));
        store<f64>(at, Math.cos(angle) * amplitude);
        store<f64>(at, Math.sin(angle) * amplitude, 8);
      }
    }
    phaseBarrier();
  }
  const stride: usize = isNeighbours ? 8 : 4;
  const partner: usize = isNeighbours ? 4 : (<usize>numPairs) << 2;
  const headBytes = (<usize>headDim) << 2;
  const rotatedBytes = (<usize>numPairs) << 3;
  for (let t = takeUnits(1); t < numTokens; t = takeUnits(1)) {
    const angles = table + <usize>t * tableRow;
    let x = addressOf(0) + <usize>(t * numHeads) * headBytes;
    let y = addressOf(3) + <usize>(t * numHeads) * headBytes;
    for (let head = 0; head < numHeads; head++, x += headBytes, y += headBytes) {
      let a: usize = 0;
      for (let at = angles; at < angles + tableRow; at += 16, a += stride) {
        const cos = load<f64>(at);
        const sin = load<f64>(at, 8);
        const xa = <f64>load<f32>(x + a);
        const xb = <f64>load<f32>(x + a + partner);
        store<f32>(y + a, <f32>(xa * cos - xb * sin));
        store<f32>(y + a + partner, <f32>(xa * sin + xb * cos));
      }
      if (x !== y && rotatedBytes < headBytes) {
        memory.copy(y + rotatedBytes, x + rotatedBytes, headBytes - rotatedBytes);
      }
    }
  }
}
