/** safetensors: the tree of the header, with its length, and the bytes. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { memorySource } from '@winnow/bytes';
import { openSafetensors } from '@winnow/safetensors';
import { concat, mutateBytes, mutateJsonText, repoRoot, type JsonTree, type Random } from '@winnow/test-utils';
import { bytesOf, textOf, type Target } from '../../src/target.ts';

/** The header of a file and its data; undefined when it has none. */
export function partsOf(bytes: Uint8Array): { readonly header: JsonTree; readonly data: Uint8Array } | undefined {
  try {
    const length = Number(new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength).getBigUint64(0, true));
    return { header: JSON.parse(textOf(bytes.subarray(8, 8 + length))) as JsonTree, data: bytes.subarray(8 + length) };
  } catch {
    return undefined;
  }
}

export function fileOf(header: string, data: Uint8Array): Uint8Array {
  const json = bytesOf(header);
  const length = new Uint8Array(8);
  new DataView(length.buffer).setBigUint64(0, BigInt(json.length), true);
  return concat(length, json, data);
}

const members: Readonly<Record<string, JsonTree>> = {
  a: { dtype: 'F32', shape: [1], data_offsets: [0, 4] },
  dtype: 'BF16',
  shape: [2 ** 31, 2 ** 31],
  data_offsets: [0, 2 ** 53],
  __metadata__: { format: 'pt' },
};

/** Larger headers are nested too deeply for a tree. */
const maxMutatedBytes = 30_000;

function mutate(random: Random, input: Uint8Array): Uint8Array {
  const parts = input.length > maxMutatedBytes ? undefined : partsOf(input);
  if (parts === undefined || random.nextInt(4) === 0) return mutateBytes(random, input);
  return fileOf(mutateJsonText(random, JSON.stringify(parts.header), members), parts.data);
}

export async function createTarget(): Promise<Target> {
  const path = join(repoRoot, 'packages', 'safetensors', 'src', '__fixtures__', 'upstream-all-dtypes.safetensors');
  return {
    examples: [new Uint8Array(readFileSync(path))],
    mutate,
    async run(input) {
      const file = await openSafetensors(memorySource(input, 'fuzz.safetensors'));
      for (const tensor of file.tensors.values()) await tensor.read(new Uint8Array(Math.min(64, tensor.sizeBytes)));
    },
  };
}
