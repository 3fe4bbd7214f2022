/** Pixels and tiles equal those of Pillow and of the processors of transformers; files that are not images are rejected. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { CapacityError, FormatError, ShapeError } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import { decodeImage } from './decode.node.js';
import { readImageHeader } from './header.js';
import type { RgbImage } from './image.js';
import { patchesOf } from './patches.js';
import { createImageProcessor } from './processor.js';
import type { ProcessorSettings } from './settings.js';

interface Golden {
  readonly images: Readonly<Record<string, { width: number; height: number; sha256: string }>>;
  readonly settings: Readonly<Record<string, ProcessorSettings>>;
  readonly processed: Readonly<
    Record<string, Readonly<Record<string, { shape: number[]; sha256: string; first: number[] }>>>
  >;
}

const fixture = (name: string): Uint8Array<ArrayBuffer> =>
  new Uint8Array(readFileSync(fileURLToPath(new URL(`__fixtures__/${name}`, import.meta.url))));
const golden = JSON.parse(new TextDecoder().decode(fixture('goldens.json'))) as Golden;
const sha256 = (parts: readonly Uint8Array[]): string => {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return hash.digest('hex');
};

describe('decoding', () => {
  test.each(Object.entries(golden.images))('%s has the pixels that Pillow decodes', async (name, expected) => {
    const { width, height, data } = await decodeImage(fixture(name));
    expect({ width, height, sha256: sha256([data]) }).toEqual(expected);
  });

  test('a Buffer that shares its memory with others is decoded', async () => {
    const shared = Buffer.concat([fixture('wide.png'), fixture('tall.jpg')]);
    const { data } = await decodeImage(shared.subarray(fixture('wide.png').length));
    expect(sha256([data])).toBe(golden.images['tall.jpg']?.sha256);
  });

  test('concurrent decoding works one image at a time, also after a broken one', async () => {
    const broken = fixture('tall.jpg');
    broken.fill(0, 160);
    const names = ['tall.jpg', 'gray.jpg', 'lossy.webp', 'wide.png'];
    const [refused, ...images] = await Promise.allSettled([
      decodeImage(fixture('wide.png').subarray(0, 300), { name: 'cut.png' }),
      ...names.map((name) => decodeImage(fixture(name))),
    ]);
    expect(refused).toMatchObject({ status: 'rejected', reason: { code: 'format', source: 'cut.png' } });
    for (const [index, image] of images.entries()) {
      expect(sha256([(image as PromiseFulfilledResult<RgbImage>).value.data])).toBe(
        golden.images[names[index] as string]?.sha256,
      );
    }
  });

  test.each([
    ['an empty file', new Uint8Array(0), 'expected a PNG, JPEG or WebP file, got a file that begins with nothing'],
    ['a GIF', new TextEncoder().encode('GIF89a..'), 'begins with 47 49 46 38 39 61 2e 2e'],
    ['a header alone', fixture('wide.png').subarray(0, 20), 'the file ends after 20 bytes'],
    ['a JPEG without a frame', fixture('tall.jpg').subarray(0, 100), 'the file ends after 100 bytes'],
  ])('%s is refused', async (_name, bytes, message) => {
    await expect(decodeImage(bytes)).rejects.toThrow(FormatError);
    await expect(decodeImage(bytes)).rejects.toThrow(message);
  });

  test('sizes are read from the header, and limits apply before decoding', async () => {
    for (const [name, { width, height }] of Object.entries(golden.images)) {
      const header = readImageHeader(fixture(name));
      const stored = name === 'turned.jpg' ? { width: height, height: width } : { width, height };
      expect(header).toEqual({ format: name.replace(/.*\./, '').replace('jpg', 'jpeg'), ...stored });
    }
    const bomb = fixture('wide.png');
    new DataView(bomb.buffer).setUint32(16, 0x7fffffff);
    await expect(decodeImage(bomb)).rejects.toThrow(CapacityError);
    await expect(decodeImage(fixture('wide.png'), { maxPixels: 61 * 40 - 1 })).rejects.toThrow(
      'needed 2440 pixels, available 2439 pixels',
    );
    await decodeImage(fixture('wide.png'), { maxPixels: 61 * 40 });
  });
});

describe('processors', () => {
  test.each(Object.entries(golden.processed))('%s makes the tiles of transformers', async (name, files) => {
    const processor = createImageProcessor(golden.settings[name] as ProcessorSettings, 'preprocessor_config.json');
    for (const [file, { shape, sha256: hash, first }] of Object.entries(files)) {
      const image = await decodeImage(fixture(file));
      const numImages = name.endsWith('-several') ? 2 : 1;
      const { tiles, rows, columns, width, height } = processor.process(image, file, numImages);
      expect([width, height]).toEqual([image.width, image.height]);
      const sizes = tiles.map((tile) => [tile.height, tile.width]);
      expect([file, sizes]).toEqual([file, Array(shape[0]).fill(shape.slice(1, 3))]);
      for (const edge of sizes.flat()) expect(edge % processor.tileSize).toBe(0);
      expect(tiles.length).toBe(Math.max(1, rows * columns + Number(rows > 0)));
      expect([file, sha256(tiles.map(({ data }) => data))]).toEqual([file, hash]);
      const size = processor.tileSize;
      const patches = patchesOf(tiles.at(-1) as RgbImage, size, processor.normalization);
      const values = [0, 1, 2, 3].flatMap((x) => [0, 1, 2].map((channel) => patches[channel * size * size + x]));
      for (const [index, value] of values.entries()) expect(value).toBeCloseTo(first[index] as number, 5);
    }
  });

  test.each(Object.keys(golden.settings))('%s rejects a strip that would be resized to gigabytes', (name) => {
    const processor = createImageProcessor(golden.settings[name] as ProcessorSettings, 'preprocessor_config.json');
    const strip = { width: 1, height: 201, data: new Uint8Array(3 * 201) };
    const message = 'strip.png: size: expected edges in a ratio of at most 200, got 1 x 201 pixels';
    expect(() => processor.process(strip, 'strip.png')).toThrow(message);
    const { tiles } = processor.process({ width: 200, height: 1, data: new Uint8Array(3 * 200) });
    const { width = 0, height = 0 } = tiles[0] ?? {};
    const keepsShape = name.startsWith('qwen2vl');
    expect([width % processor.tileSize, height]).toEqual([0, keepsShape ? height : processor.tileSize]);
    expect(width > height).toBe(keepsShape);
  });

  test('an image that keeps its shape has no more pixels than the caller allows', async () => {
    const image = await decodeImage(fixture('wide.png'));
    const sizeOf = (maxPixels: number): number[] => {
      const settings = golden.settings['qwen2vl-enlarged'] as ProcessorSettings;
      const [tile] = createImageProcessor(settings, 'p.json', { maxPixels }).process(image).tiles as [RgbImage];
      return [tile.width, tile.height];
    };
    expect([9000, 2048, 1].map(sizeOf)).toEqual([
      [80, 48],
      [64, 32],
      [16, 16],
    ]);
    const enlarged = {
      ...golden.settings['qwen2vl-enlarged'],
      size: { shortest_edge: 2 ** 40, longest_edge: 2 ** 41 },
    };
    expect(() => createImageProcessor(enlarged, 'p.json')).toThrow('min_pixels: expected at most 67108864, got');
  });
});

describe('patches and settings', () => {
  const next = golden.settings['llava-next'];
  test('patches are rows by channel', () => {
    const data = Uint8Array.from({ length: 3 * 4 * 2 }, (_, index) => index);
    const normalization = { rescale: 1, mean: [0, 0, 0], std: [1, 1, 1] };
    const patches = patchesOf({ width: 4, height: 2, data }, 2, normalization);
    expect([...patches]).toEqual([
      ...[0, 3, 12, 15, 1, 4, 13, 16, 2, 5, 14, 17],
      ...[6, 9, 18, 21, 7, 10, 19, 22, 8, 11, 20, 23],
    ]);
    // as often as a convolution has frames
    const frames = patchesOf({ width: 4, height: 2, data }, 2, normalization, 2);
    expect([...frames.subarray(0, 12)]).toEqual([0, 3, 12, 15, 0, 3, 12, 15, 1, 4, 13, 16]);
    expect([...frames.subarray(36)]).toEqual([7, 10, 19, 22, 8, 11, 20, 23, 8, 11, 20, 23]);
    expect(() => patchesOf({ width: 4, height: 2, data }, 4, normalization)).toThrow(ShapeError);
  });

  test('an image is not padded to a square of more pixels than an image may have', () => {
    const settings = golden.settings['llava-onevision'] as ProcessorSettings;
    const processor = createImageProcessor(settings, 'p.json');
    const long = { width: 10_000, height: 60, data: new Uint8Array(3 * 10_000 * 60) };
    expect(() => processor.process(long, 'long', 2)).toThrow(CapacityError);
  });

  test.each([
    [{ image_processor_type: 'FuyuImageProcessor' }, 'image_processor_type: expected CLIPImageProcessor'],
    [{ size: { height: 32, width: 16 }, do_center_crop: false }, 'size: expected a square'],
    [{ size: 1e9 }, 'size: expected a whole number of pixels up to 8192'],
    [{ resample: 0 }, 'resample: expected 1 (Lanczos)'],
    [{ image_std: [1, 0, 1] }, 'image_std: expected no zeros'],
    [{ image_mean: [1] }, 'image_mean: expected three numbers'],
    [{ do_resize: false }, 'do_resize: expected true'],
    [{ do_pan_and_scan: true }, 'do_pan_and_scan: expected false'],
    [{ ...next, image_grid_pinpoints: [] }, 'image_grid_pinpoints: expected 1 to 1024 pairs'],
    [{ ...next, image_grid_pinpoints: [[28, 57]] }, 'image_grid_pinpoints: expected pairs of multiples of 28 pixels'],
    [{ ...next, image_grid_pinpoints: [[28, 28 * 145]] }, 'with at most 144 tiles, got [28,4060]'],
    [{ ...next, crop_size: { height: 24, width: 24 } }, 'crop_size: expected 28 x 28 pixels, as size'],
    [{ ...next, size: { longest_edge: 28 } }, 'size: expected a square or a shortest_edge'],
    [{ image_processor_type: 'Qwen2VLImageProcessor', patch_size: 0 }, 'patch_size: expected a whole number'],
    [{ image_processor_type: 'Qwen2VLImageProcessor', min_pixels: 2e6 }, 'min_pixels: expected at most 1003520'],
    [{ image_processor_type: 'Qwen2VLImageProcessor', size: 3 }, 'size: expected shortest_edge and longest_edge'],
  ])('settings %j are refused', (settings, message) => {
    const all = { ...golden.settings['clip'], ...settings };
    expect(() => createImageProcessor(all, 'p.json')).toThrow(message);
  });
});
