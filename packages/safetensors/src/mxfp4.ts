/** MXFP4 weights of checkpoints: a U8 tensor of blocks and one of scales, read as one tensor of the block format. */
import type { StoredTensor } from '@winnow/bytes';
import { formatShape, tensorBytes } from '@winnow/tensor';
import type { UnsupportedTensor } from './stored-slice.js';

/** Values of a block, bytes of their codes, and bytes of a block with its scale. */
const [blockValues, codeBytes, blockBytes] = [32, 16, 17];
const [blocksSuffix, scalesSuffix] = ['_blocks', '_scales'];

/** Tensors by name. */
interface Tensors {
  readonly tensors: ReadonlyMap<string, StoredTensor>;
  readonly unsupported: ReadonlyMap<string, UnsupportedTensor>;
}

/**
 * Replaces pairs of U8 tensors `NAME_blocks` `[..., G, 16]` and `NAME_scales` `[..., G]` by `NAME` `[..., 32 G]`, after the
 * other tensors. Scales are E8M0, codes E2M1 (transformers/integrations/mxfp4.py, `convert_moe_packed_tensors`).
 */
export function withMxfp4({ tensors, unsupported }: Tensors): Tensors {
  const [joined, left] = [new Map(tensors), new Map(unsupported)];
  for (const { name: blocksName, bytes: blocks } of unsupported.values()) {
    const name = blocksName.slice(0, -blocksSuffix.length);
    const scales = unsupported.get(`${name}${scalesSuffix}`)?.bytes;
    if (!blocksName.endsWith(blocksSuffix) || blocks === undefined || scales === undefined || joined.has(name))
      continue;
    if (formatShape(blocks.shape) !== formatShape([...scales.shape, codeBytes])) continue;
    joined.set(name, mxfp4View(name, blocks, scales));
    left.delete(blocksName);
    left.delete(scales.name);
  }
  return { tensors: joined, unsupported: left };
}

function mxfp4View(name: string, blocks: StoredTensor, scales: StoredTensor): StoredTensor {
  const shape = [...scales.shape.slice(0, -1), (scales.shape.at(-1) as number) * blockValues];
  return {
    name,
    dtype: 'mxfp4',
    shape,
    sizeBytes: tensorBytes('mxfp4', shape),
    async read(target, { byteOffset = 0, ...options } = {}) {
      const begin = Math.floor(byteOffset / blockBytes);
      const end = Math.ceil((byteOffset + target.length) / blockBytes);
      const codes = new Uint8Array((end - begin) * codeBytes);
      const exponents = new Uint8Array(end - begin);
      await blocks.read(codes, { ...options, byteOffset: begin * codeBytes });
      await scales.read(exponents, { ...options, byteOffset: begin });
      const packed = packBlocks(codes, exponents);
      const skipped = byteOffset - begin * blockBytes;
      target.set(packed.subarray(skipped, skipped + target.length));
    },
  };
}

/** Blocks of a scale and 16 bytes of codes `(i, i + 16)`; checkpoints have codes `(2 i, 2 i + 1)` in a byte. */
function packBlocks(codes: Uint8Array, exponents: Uint8Array): Uint8Array {
  const packed = new Uint8Array(exponents.length * blockBytes);
  const codeOf = (block: number, i: number): number =>
    ((codes[block * codeBytes + (i >> 1)] as number) >> (4 * (i & 1))) & 15;
  for (const [block, exponent] of exponents.entries()) {
    const at = block * blockBytes;
    packed[at] = exponent;
    for (let i = 0; i < codeBytes; i++) packed[at + 1 + i] = codeOf(block, i) | (codeOf(block, i + codeBytes) << 4);
  }
  return packed;
}
