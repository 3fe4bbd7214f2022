/** Which weights and caches belong together: those of one layer, so that a backend with several memories keeps them in one. */
import type { BufferGroup, Program } from '@winnow/ops';
import { buffersOf } from './program-buffers.js';

/** The group of every buffer that is used in one layer only. */
export function bufferGroups(programs: readonly Program[]): Map<string, BufferGroup> {
  const layers = new Map<string, Set<number>>();
  for (const { buffers, records } of programs) {
    for (const { inputs, outputs, layer } of records) {
      for (const { buffer } of [...Object.values(inputs), ...Object.values(outputs)]) {
        const { name } = buffers[buffer] as { readonly name: string };
        const known = layers.get(name) ?? new Set();
        layers.set(name, known.add(layer));
      }
    }
  }
  const members = new Map<number, string[]>();
  const sizes = new Map<number, number>();
  for (const { name, sizeBytes } of buffersOf(programs)) {
    const [layer = -1, ...others] = layers.get(name) ?? [];
    if (layer < 0 || others.length > 0) continue;
    members.set(layer, [...(members.get(layer) ?? []), name]);
    sizes.set(layer, (sizes.get(layer) ?? 0) + sizeBytes);
  }
  const groups = new Map<string, BufferGroup>();
  for (const [layer, names] of members) {
    const group: BufferGroup = { sizeBytes: sizes.get(layer) as number };
    for (const name of names) groups.set(name, group);
  }
  return groups;
}
