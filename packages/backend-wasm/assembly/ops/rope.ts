import { FLAG_REUSE, ROPE_ENTRY_BYTES, TABLE_AUX } from '../runtime/layout.generated';
import { LAYOUT_NEIGHBORS, attributes, frequencies, positions, rows, x, y } from '../operands/rope.generated';
import { floatAt, intAt } from '../runtime/arrays';
import { aux, hasFlag } from '../runtime/record';
import { phaseBarrier, nextItems } from '../runtime/threads';

/**
 * Work items: tokens. Angles are in f64. The first rope of a program computes the f64 table of cosines and sines `[T, F, 2]`
 * that its plan entry names; all others with the same positions and frequencies reuse it.
 */
export function rope(): void {
  const numTokens = x.numTokens;
  const numHeads = x.numHeads;
  const headDim = x.headDim;
  const numPairs = attributes.numPairs || frequencies.numFrequencies;
  const areNeighbors = attributes.layout === LAYOUT_NEIGHBORS;
  const amplitude = <f64>attributes.amplitude;
  const table = aux(TABLE_AUX);
  const tableRow = <usize>numPairs * ROPE_ENTRY_BYTES;
  if (!hasFlag(FLAG_REUSE)) {
    for (let t = nextItems(1); t < numTokens; t = nextItems(1)) {
      let at = table + <usize>t * tableRow;
      const position = <f64>intAt(positions.address, t);
      const row = rows.isPresent ? intAt(rows.address, t) * numPairs : 0;
      for (let i = 0; i < numPairs; i++, at += ROPE_ENTRY_BYTES) {
        const angle = position * <f64>floatAt(frequencies.address, row + i);
        store<f64>(at, Math.cos(angle) * amplitude);
        store<f64>(at, Math.sin(angle) * amplitude, 8);
      }
    }
    phaseBarrier();
  }
  const stride: usize = areNeighbors ? 8 : 4;
  const partner: usize = areNeighbors ? 4 : (<usize>numPairs) << 2;
  const headBytes = (<usize>headDim) << 2;
  const rotatedBytes = (<usize>numPairs) << 3;
  for (let t = nextItems(1); t < numTokens; t = nextItems(1)) {
    const angles = table + <usize>t * tableRow;
    let from = x.address + <usize>(t * numHeads) * headBytes;
    let to = y.address + <usize>(t * numHeads) * headBytes;
    for (let head = 0; head < numHeads; head++, from += headBytes, to += headBytes) {
      let a: usize = 0;
      for (let at = angles; at < angles + tableRow; at += ROPE_ENTRY_BYTES, a += stride) {
        const cos = load<f64>(at);
        const sin = load<f64>(at, 8);
        const xa = <f64>load<f32>(from + a);
        const xb = <f64>load<f32>(from + a + partner);
        store<f32>(to + a, <f32>(xa * cos - xb * sin));
        store<f32>(to + a + partner, <f32>(xa * sin + xb * cos));
      }
      if (from !== to && rotatedBytes < headBytes) {
        memory.copy(to + rotatedBytes, from + rotatedBytes, headBytes - rotatedBytes);
      }
    }
  }
}
