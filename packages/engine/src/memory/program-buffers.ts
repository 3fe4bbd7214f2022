/** The weights and caches that several programs share, by name. */
import type { Program, ProgramBuffer } from '@winnow/ops';
import { invariant } from '@winnow/tensor';

/** Each named buffer once. */
export function buffersOf(programs: readonly Program[]): readonly ProgramBuffer[] {
  const buffers = new Map<string, ProgramBuffer>();
  for (const buffer of programs.flatMap((program) => program.buffers)) {
    if (buffer.usage !== 'weights' && buffer.usage !== 'kv') continue;
    const known = buffers.get(buffer.name);
    invariant(
      known === undefined || known.sizeBytes === buffer.sizeBytes,
      `programs agree on the size of ${buffer.name}`,
    );
    buffers.set(buffer.name, buffer);
  }
  return [...buffers.values()];
}

/** Bytes of the weights that programs read, including slots of offloaded ones. */
export function weightBytesOf(programs: readonly Program[]): number {
  let bytes = 0;
  for (const { name, usage, sizeBytes } of buffersOf(programs)) {
    if (usage === 'weights' || isSlotBuffer(name)) bytes += sizeBytes;
  }
  return bytes;
}

/** Name prefix of slot buffers and of buffers that the host writes. */
export const slotPrefix = 'slots.';

export function isSlotBuffer(name: string): boolean {
  return name.startsWith(slotPrefix);
}
