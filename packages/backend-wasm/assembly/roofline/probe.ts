/**
 * Roofline probes, as records whose only tensor is the memory they use: `[units, size of a unit]`, in bytes to read or passes
 * of a loop. The sums of the loops are stored so that no compiler removes the loops.
 */
import { integerDots, multiplyAdds, readMemory } from './loops';
import { region } from '../operands/probe.generated';
import { localScratch } from '../runtime/record';
import { JOB_OPCODE_PROBE_F32, JOB_OPCODE_PROBE_READ, JOB_OPCODE_PROBE_TOUCH } from '../runtime/layout.generated';
import { nextItems } from '../runtime/threads';

export function probe(opcode: i32): void {
  const numUnits = region.numUnits;
  const size = region.unitBytes;
  const begin = region.address;
  let sum = 0;
  for (let unit = nextItems(1); unit < numUnits; unit = nextItems(1)) {
    const at = begin + <usize>unit * <usize>size;
    if (opcode === JOB_OPCODE_PROBE_TOUCH) memory.fill(at, 1, <usize>size);
    else if (opcode === JOB_OPCODE_PROBE_READ) sum += readMemory(at, <usize>size);
    else if (opcode === JOB_OPCODE_PROBE_F32) sum += multiplyAdds(begin, size);
    else sum += integerDots(begin, size);
  }
  store<i32>(localScratch(), sum);
}
