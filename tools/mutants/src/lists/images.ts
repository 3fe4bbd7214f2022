/** Defects in image encoders, and in the rows of images in prompts. */
import type { Mutant } from '../mutant.ts';

export const imagesMutants: readonly Mutant[] = [
  {
    file: 'packages/engine/src/plan/attention-plan.ts',
    find: 'Math.max(1, 2 * (window - 1))',
    replace: '2 * window',
    tests: ['test/goldens/images.test.ts'],
  },
  {
    file: 'packages/engine/src/runtime/chunks.ts',
    find: 'begin + (isImage ? this.#maxImageRows : maxTokens)',
    replace: 'begin + maxTokens',
    tests: ['test/goldens/images.test.ts'],
  },
  {
    file: 'packages/models/src/vision/tower.ts',
    find: '{ scale: -embeddingScale }',
    replace: '{ scale: -1 }',
    tests: ['packages/engine/test/goldens/images.test.ts'],
  },
  {
    file: 'packages/models/src/vision/tower.ts',
    find: '(placeOf?.[patch] ?? patch) + Number(hasClass)',
    replace: '(placeOf?.[patch] ?? patch)',
    tests: ['packages/engine/test/goldens/images.test.ts'],
  },
  {
    file: 'packages/engine/src/images/step-images.ts',
    find: 'this.#slot[token] = 0;',
    replace: '',
    tests: ['test/goldens/images.test.ts'],
  },
  {
    file: 'packages/engine/src/images/image-rows.ts',
    find: 'for (const id of tile.ids) this.#places.delete(id);',
    replace: '',
    tests: ['src/images/image-rows.test.ts'],
  },
  {
    file: 'packages/engine/src/images/image-rows.ts',
    find: 'this.#places.has(id) || ',
    replace: '',
    tests: ['src/images/image-rows.test.ts'],
  },
  {
    file: 'packages/engine/src/embedding/model.ts',
    find: 'all.set(ids);',
    replace: 'all.set(ids, all.length - ids.length);',
    tests: ['test/goldens/images.test.ts'],
  },
  {
    file: 'packages/vision/src/decode.node.ts',
    find: 'decode(new Uint8Array(bytes).buffer)',
    replace: 'decode(bytes.slice().buffer as ArrayBuffer)',
    tests: ['src/vision.test.ts'],
  },
  {
    file: 'packages/vision/src/processor.ts',
    find: 'if (Math.max(width, height) <= maxRatio * Math.min(width, height)) return image;',
    replace: 'if (width <= maxRatio * height) return image;',
    tests: ['src/vision.test.ts'],
  },
  {
    file: 'packages/engine/src/images/image-prompts.ts',
    find: 'needed += numRowsOf(processed, encoder.vision);',
    replace: 'needed = numRowsOf(processed, encoder.vision);',
    tests: ['test/goldens/images.test.ts'],
  },
  {
    file: 'packages/engine/src/images/image-rows.ts',
    find: '...mean, ...std);',
    replace: '...std);',
    tests: ['src/images/image-rows.test.ts'],
  },
  {
    file: 'apps/cli/src/commands/run.ts',
    find: 'Math.max(0, numMissing)',
    replace: 'images.length',
    tests: ['test/images.test.ts'],
  },
  {
    file: 'packages/models/src/vision/bucket-positions.ts',
    find: 'length - (length % pair)',
    replace: '0',
    tests: ['src/vision/bucket-positions.test.ts'],
  },
  {
    file: 'packages/models/src/architectures/smolvlm.ts',
    find: '    places: squarePlaces(bucketPositions(side)),\n',
    replace: '',
    tests: ['packages/engine/test/goldens/images.test.ts'],
  },
  {
    file: 'packages/engine/src/images/grid-rows.ts',
    find: 'if (ratio <= 1.1)',
    replace: 'if (ratio <= 2)',
    tests: ['test/goldens/images.test.ts'],
  },
  {
    file: 'packages/vision/src/anyres.ts',
    find: 'if (kept > mostKept ||',
    replace: 'if (kept >= mostKept ||',
    tests: ['src/vision.test.ts'],
  },
  {
    file: 'packages/hub/src/select-files.ts',
    find: 'if (!/\\.gguf$/i.test(name) || isMmproj(name)) continue;',
    replace: 'if (!/\\.gguf$/i.test(name)) continue;',
    tests: ['src/select-files.test.ts'],
  },
];
