/**
 * Probes of the machine, as records whose one tensor is the memory they use: `[units, size of a unit]`, a unit being bytes
 * to read or passes of a loop. What the loops sum up goes where nobody looks.
 */
import { integerDots, multiplyAdds, readMemory } from '../runtime/roofline-loops';
import { addressOf, dim, localScratch } from '../runtime/record';
import { takeUnits } from '../runtime/threads';

export const PROBE_TOUCH: i32 = 1010;
export const PROBE_READ: i32 = 1011;
export const PROBE_F32: i32 = 1012;
export const PROBE_INT8: i32 = 1013;

export function probe(opcode: i32): void {
  const numUnits = dim(0, 0);
  const size = dim(0, 1);
  const begin = addressOf(0);
  let sum = 0;
  for (let unit = takeUnits(1); unit < numUnits; unit = takeUnits(1)) {
    const at = begin + <usize>unit * <usize>size;
    if (opcode === PROBE_TOUCH) memory.fill(at, 1, <usize>size);
    else if (opcode === PROBE_READ) sum += readMemory(at, <usize>size);
    else if (opcode === PROBE_F32) sum += multiplyAdds(begin, size);
    else sum += integerDots(begin, size);
  }
  store<i32>(localScratch(), sum);
}
