/** Image files of every format: headers, and what the codecs do with broken data. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { mutateBytes, repoRoot } from '@winnow/test-utils';
import { createImageProcessor, patchesOf } from '@winnow/vision';
import { decodeImage } from '@winnow/vision/node';
import type { Target } from '../../src/target.ts';

const names = ['alpha.png', 'palette.png', 'gray.jpg', 'progressive.jpg', 'turned.jpg', 'lossy.webp', 'lossless.webp'];
const settings = {
  image_processor_type: 'SiglipImageProcessor',
  size: { height: 16, width: 16 },
  image_mean: [0.5, 0.5, 0.5],
  image_std: [0.5, 0.5, 0.5],
};

export async function createTarget(): Promise<Target> {
  const folder = join(repoRoot, 'packages', 'vision', 'src', '__fixtures__');
  const processor = createImageProcessor(settings, 'preprocessor_config.json');
  return {
    examples: names.map((name) => new Uint8Array(readFileSync(join(folder, name)))),
    mutate: mutateBytes,
    async run(input) {
      const image = await decodeImage(input, { name: 'fuzz image', maxPixels: 1 << 16 });
      for (const tile of processor.process(image).tiles) patchesOf(tile, 8, processor.normalization);
    },
  };
}
