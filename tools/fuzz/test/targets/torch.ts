/** State dicts of PyTorch: the bytes of an archive, and its pickle. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { memorySource } from '@winnow/bytes';
import { openStateDict } from '@winnow/hub';
import { mutateBytes, repoRoot, type Random } from '@winnow/test-utils';
import type { Target } from '../../src/target.ts';

const folder = join(repoRoot, 'packages', 'hub', 'src', '__fixtures__');

/** Where the pickle of the first entry begins, roughly: after the header and the name. */
const pickleBegin = 64;

/** Changes a few bytes in place, so that the directory still fits, or anything. */
function mutate(random: Random, input: Uint8Array): Uint8Array {
  if (random.nextInt(4) === 0) return mutateBytes(random, input);
  const bytes = input.slice();
  const numBytes = Math.min(bytes.length, pickleBegin + 600);
  for (let i = 0; i <= random.nextInt(4); i++) {
    const from = random.nextInt(numBytes);
    bytes[random.nextInt(numBytes)] = random.nextInt(2) === 0 ? random.nextInt(256) : (bytes[from] ?? 0);
  }
  return bytes;
}

export async function createTarget(): Promise<Target> {
  return {
    examples: ['linear', 'tensors', 'code'].map((name) => new Uint8Array(readFileSync(join(folder, `${name}.pt`)))),
    mutate,
    async run(input) {
      const file = await openStateDict(memorySource(input, 'fuzz.pt'));
      for (const tensor of file.tensors.values()) await tensor.read(new Uint8Array(Math.min(64, tensor.sizeBytes)));
    },
  };
}
