import { createRng, FormatError, WinnowError } from '@winnow/tensor';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { randomBlock } from '../../test/blocks.js';
import { fileOf, open, sidecarBytes, sidecarOf, sparseLayer } from '../../test/sidecars.js';
import { classifyNeurons } from './neuron-classes.js';
import { readSidecar } from './read-sidecar.js';
import { checksumOf, sidecarContent, type SidecarContent } from './sidecar-content.js';
import { metadataKeys, predictorKinds } from './sidecar.js';
import { decodeMatrix, encodeMatrix } from './stored-matrix.js';

const block = randomBlock({ activation: 'relu', isGated: true, hiddenDim: 32, ffnDim: 24 }, 1);
const odd = randomBlock({ activation: 'gelu-erf', isGated: false, hiddenDim: 20, ffnDim: 7 }, 2); // not a multiple of the q8_0 block size
const sidecar = sidecarOf([
  sparseLayer('low-rank', 0, block, 3),
  sparseLayer('gate-threshold', 2, block, 4),
  sparseLayer('input-threshold', 3, block, 5),
  sparseLayer('low-rank', 4, odd, 6),
  sparseLayer('low-rank-product', 5, block, 7),
]);

/** The file after a change of its JSON, with a matching checksum by default. */
async function changed(change: (json: Record<string, unknown>) => void, hasChecksum = true): Promise<Uint8Array> {
  const { tensors, metadata } = sidecarContent(sidecar);
  const json = JSON.parse(metadata[metadataKeys.content] as string) as Record<string, unknown>;
  change(json);
  const content = JSON.stringify(json);
  const checksum = hasChecksum ? checksumOf(content, tensors) : (metadata[metadataKeys.checksum] as string);
  return fileOf({ tensors, metadata: { [metadataKeys.content]: content, [metadataKeys.checksum]: checksum } });
}

const layerOf = (json: Record<string, unknown>, index: number): Record<string, unknown> =>
  (json['layers'] as Record<string, unknown>[])[index] as Record<string, unknown>;

describe('a sidecar', () => {
  test('survives a round trip, and is written deterministically', async () => {
    const bytes = await sidecarBytes(sidecar);
    expect(await readSidecar(await open(bytes), { modelHash: 'xxh:1' })).toEqual(sidecar);
    expect(await sidecarBytes(sidecarOf([...sidecar.layers]))).toEqual(bytes);
    const named = { ...sidecar, weightsChecksum: 'xxh-all:2' };
    expect(await readSidecar(await open(await sidecarBytes(named)))).toEqual(named);
  });

  test('does not depend on how the model stores its rows', () => {
    const rows = { dtypes: ['q8_0'] as const, areInterleaved: true };
    const layers = sidecar.layers.map((layer) => ({ ...layer, rows }));
    expect(sidecarContent({ ...sidecar, layers })).toEqual(sidecarContent(sidecar));
  });

  test('has int8 codes and scales that other programs can read', () => {
    const names = sidecarContent(sidecar).tensors.map(({ name, dtype }) => `${name} ${dtype}`);
    expect(names).toContain('layers.0.p.codes i8');
    expect(names).toContain('layers.0.q.scales f16');
    expect(names).toContain('layers.4.p f16');
    expect(names.filter((name) => name.includes('nibbles'))).not.toEqual([]);
    expect(names).toContain('layers.3.input_thresholds f32');
  });

  test.each([
    ['q8_0', 0.5 / 127],
    ['q4_0', 1 / 8], // codes from -8 to 7: the largest value has an error of up to a whole step
  ] as const)('matrices keep their values within what %s holds', (dtype, share) => {
    const rng = createRng(9);
    const values = Float32Array.from({ length: 64 * 5 }, () => rng.nextGaussian());
    const back = decodeMatrix(encodeMatrix(values, 5, 64, dtype));
    for (let begin = 0; begin < values.length; begin += 32) {
      const largest = Math.max(...values.subarray(begin, begin + 32).map(Math.abs));
      // and the scale is rounded to f16
      for (let i = begin; i < begin + 32; i++) {
        expect(Math.abs((back[i] as number) - (values[i] as number))).toBeLessThanOrEqual(largest * (share + 2 ** -11));
      }
    }
  });
});

const refused = async (bytes: Uint8Array, message: RegExp, options = {}): Promise<void> => {
  const reading = open(bytes).then((file) => readSidecar(file, options));
  await expect(reading).rejects.toThrow(FormatError);
  await expect(reading).rejects.toThrow(message);
};

describe('errors', () => {
  test('of another model', async () => {
    const bytes = await sidecarBytes(sidecar);
    await refused(bytes, /modelHash: expected the hash of the model, xxh:2, found xxh:1/, { modelHash: 'xxh:2' });
    const shape = { hiddenDim: 32, ffnDim: 24, activation: 'relu' as const, isGated: true };
    const shapes = new Map([0, 2, 3].map((layer) => [layer, shape]));
    await refused(bytes, /layers\[3\].layer: expected a layer of the model/, { shapes });
    shapes.set(4, { ...shape, hiddenDim: 20, ffnDim: 7, activation: 'gelu-erf' as never });
    await refused(bytes, /layers\[3\].isGated: expected true, as in the model/, { shapes });
    await refused(bytes, /hiddenDim: expected 48, as in the model, found 32/, {
      shapes: shapes.set(0, { ...shape, hiddenDim: 48 }),
    });
  });

  test('of a newer version', async () => {
    await refused(
      await changed((json) => (json['version'] = 2)),
      /version: expected at most 1 \(made by a newer Winnow\?\), found 2/,
    );
  });

  test('of files that are not safetensors', async () => {
    await refused(await fileOf({ tensors: [], metadata: {} }), /winnow.sparse: .* \(not a sidecar\)/);
    await refused(await fileOf({ tensors: [], metadata: { 'winnow.sparse': '{' } }), /expected JSON/);
    await refused(await fileOf({ tensors: [], metadata: { 'winnow.sparse': '[]' } }), /expected an object/);
  });

  test('of metadata that was changed', async () => {
    await refused(await changed((json) => (json['modelHash'] = 'xxh:7'), false), /checksum.*damaged/);
  });

  test.each<[string, (json: Record<string, unknown>) => void, RegExp]>([
    ['no layers', (json) => (json['layers'] = []), /layers: expected at least one layer/],
    ['a layer twice', (json) => (layerOf(json, 1)['layer'] = 0), /layers\.0\.|index above/],
    ['an unknown predictor', (json) => (layerOf(json, 0)['predictor'] = { kind: 'magic' }), /kind: expected low-rank/],
    ['another rank', (json) => (layerOf(json, 0)['predictor'] = { kind: 'low-rank', rank: 64 }), /layers\.0\.p\.codes/],
    ['a strange rank', (json) => (layerOf(json, 0)['predictor'] = { kind: 'low-rank', rank: 33 }), /multiple of 32/],
    ['a huge size', (json) => (layerOf(json, 0)['ffnDim'] = 1e9), /ffnDim: expected a number from 1/],
    ['another size', (json) => (layerOf(json, 0)['ffnDim'] = 25), /thresholds: expected a tensor f32 \[25\]/],
    ['a missing report', (json) => delete layerOf(json, 0)['report'], /report: expected an object/],
    ['a recall of 2', (json) => ((layerOf(json, 0)['report'] as Record<string, unknown>)['recall'] = 2), /recall/],
    ['an unknown activation', (json) => (layerOf(json, 0)['activation'] = 'tanh'), /activation: expected silu/],
    ['tensors of no layer', (json) => (json['layers'] as unknown[]).pop(), /layers\.5\.\w+: expected only tensors/],
    ['no config', (json) => (json['config'] = 7), /config: expected an object, found 7/],
  ])('%s', async (_name, change, message) => {
    await refused(await changed(change), message);
  });
});

describe('rejected contents', () => {
  test('a low-rank product for an FFN without a gate', async () => {
    const bytes = await changed((json) => Object.assign(layerOf(json, 4), { isGated: false }));
    await refused(bytes, /kind: expected another one for blocks without a gate/);
  });

  test('NaN among thresholds', async () => {
    const layer = sparseLayer('gate-threshold', 0, block, 1);
    layer.predictor.thresholds[3] = NaN;
    await refused(await sidecarBytes(sidecarOf([layer])), /layers.0.thresholds: expected numbers, found NaN/);
  });
});

describe('fuzz', () => {
  test('a flipped bit anywhere is rejected', async () => {
    const bytes = await sidecarBytes(sidecar);
    await fc.assert(
      fc.asyncProperty(fc.nat(bytes.length * 8 - 1), async (bit) => {
        const broken = bytes.slice();
        broken[bit >> 3] = (broken[bit >> 3] as number) ^ (1 << (bit & 7));
        const outcome = await open(broken)
          .then((file) => readSidecar(file))
          .then(
            (read) => read,
            (error: unknown) => error,
          );
        // the padding after the header may be any white space
        if (!WinnowError.isInstance(outcome)) expect(outcome).toEqual(sidecar);
        else expect(['format', 'dtype', 'argument']).toContain(outcome.code);
      }),
      { numRuns: 400 },
    );
  });

  test('a truncated file is rejected', async () => {
    const bytes = await sidecarBytes(sidecar);
    await fc.assert(
      fc.asyncProperty(fc.nat(bytes.length - 1), async (length) => {
        await expect(open(bytes.slice(0, length)).then((file) => readSidecar(file))).rejects.toThrow(FormatError);
      }),
      { numRuns: 60 },
    );
  });

  test('any JSON in place of the metadata is read or rejected', async () => {
    const { tensors, metadata } = sidecarContent(sidecar);
    const valid = JSON.parse(metadata[metadataKeys.content] as string) as object;
    const pathsOf = (value: unknown, path: string[] = []): string[][] =>
      typeof value === 'object' && value !== null
        ? [path, ...Object.entries(value).flatMap(([key, item]) => pathsOf(item, [...path, key]))]
        : [path];
    const paths = pathsOf(valid).filter((path) => path.length > 0);
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...paths), fc.jsonValue({ maxDepth: 2 }), async (path, value) => {
        const json = structuredClone(valid) as Record<string, unknown>;
        let parent = json;
        for (const key of path.slice(0, -1)) parent = parent[key] as Record<string, unknown>;
        parent[path.at(-1) as string] = value;
        const content = JSON.stringify(json);
        const file: SidecarContent = {
          tensors,
          metadata: { [metadataKeys.content]: content, [metadataKeys.checksum]: checksumOf(content, tensors) },
        };
        const reading = await open(await fileOf(file)).then((opened) =>
          readSidecar(opened).catch((error: unknown) => error),
        );
        if (reading instanceof Error) expect(FormatError.isInstance(reading)).toBe(true);
      }),
      { numRuns: 300 },
    );
  });
});

describe('classes of neurons', () => {
  test('hot neurons cover half of the activity, cold ones a twentieth', () => {
    const { hot, warm, cold } = classifyNeurons(Float32Array.of(0.01, 0.55, 0.2, 0.2, 0.06, 0.03));
    expect([...hot]).toEqual([1]);
    expect([...warm]).toEqual([2, 3, 4]);
    expect([...cold]).toEqual([5, 0]);
  });

  test('every neuron belongs to one class', () => {
    fc.assert(
      fc.property(fc.array(fc.float({ min: 0, max: 1, noNaN: true }), { maxLength: 40 }), (list) => {
        const { hot, warm, cold } = classifyNeurons(Float32Array.from(list));
        expect([...hot, ...warm, ...cold].sort((a, b) => a - b)).toEqual(list.map((_, id) => id));
      }),
    );
  });
});

test('predictorKinds lists every kind', () => {
  expect(predictorKinds).toEqual(['low-rank', 'low-rank-product', 'gate-threshold', 'input-threshold']);
});
