/**
 * Neurons from a file: the speed of loading random active sets into slots, compared with reading the same file
 * sequentially in the same run, with a cold page cache (if the system supports it; otherwise the figures say so).
 */
import { mkdir, open, rm, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { fileSource } from '@winnow/bytes/node';
import { createNeuronCache, type NeuronCache, type NeuronPiece } from '@winnow/sparse-inference';
import { createRng, sizeOf, type DType, type Rng } from '@winnow/tensor';
import type { Figure } from '../../harness/figure.js';
import { measure, median, type Contender } from '../../harness/measure.js';
import { dropFromPageCache } from '../../harness/page-cache.js';
import { measureOptions, type SuiteContext } from '../../harness/suite.js';

const suite = 'ffn';
const matrices = ['gate', 'up', 'down'] as const;
/** Size and number of concurrent reads of the whole file. */
const rawReadBytes = 1024 * 1024;
const numRawReads = 8;
/** Share of the file in the page cache above which a figure does not measure the disk. */
const mostResident = 0.02;

interface ColdShape {
  readonly hiddenDim: number;
  readonly ffnDim: number;
  readonly dtype: DType;
  /** Neuron rows interleaved, or separate matrices. */
  readonly layout: 'bundles' | 'matrices';
}

/** Reads 5, 10 and 20 % of the neurons of a layer, sampled again for each run. */
export async function* ffnColdReads(context: SuiteContext, folder: string): AsyncIterable<Figure> {
  const { quick } = context.options;
  const [hiddenDim, ffnDim] = quick ? [512, 1024] : [4096, 14336];
  const shapes: readonly ColdShape[] = [
    { hiddenDim, ffnDim, dtype: 'q8_0', layout: 'bundles' },
    ...(quick ? [] : [{ hiddenDim, ffnDim, dtype: 'q4_0', layout: 'bundles' } as const]),
    { hiddenDim, ffnDim, dtype: 'q4_0', layout: 'matrices' },
  ];
  await mkdir(folder, { recursive: true });
  for (const shape of shapes) yield* coldReadsOf(context, folder, shape);
}

async function* coldReadsOf(context: SuiteContext, folder: string, shape: ColdShape): AsyncIterable<Figure> {
  const { hiddenDim, ffnDim, dtype, layout } = shape;
  const rowBytes = sizeOf(dtype, hiddenDim);
  const sizeBytes = rowBytes * matrices.length * ffnDim;
  const path = join(folder, `ffn-cold-${process.pid}`);
  await writeRandom(path, sizeBytes);
  const source = await fileSource(path);
  const raw = await open(path, 'r');
  const pieces = matrices.map((name, index): NeuronPiece => ({
    name,
    dtype,
    valuesPerItem: hiddenDim,
    source,
    byteOffset: layout === 'bundles' ? index * rowBytes : index * rowBytes * ffnDim,
    ...(layout === 'bundles' ? { strideBytes: matrices.length * rowBytes } : {}),
  }));
  const rng = createRng(1);
  let isOfDisk = true;
  const drop = async (): Promise<void> => {
    const resident = await dropFromPageCache(path);
    isOfDisk &&= resident !== undefined && resident <= mostResident;
  };
  const readings = new Map<string, Reading>();
  for (const share of context.options.quick ? [0.05] : [0.05, 0.1, 0.2]) {
    readings.set(`${share * 100} %`, await readingOf(pieces, ffnDim, Math.round(share * ffnDim), rng, drop));
  }
  try {
    const contenders: Record<string, Contender> = { disk: { run: () => readAll(raw, sizeBytes, drop) } };
    for (const [name, { run }] of readings) contenders[name] = { run };
    const options = measureOptions(context.options, 5);
    const timings = await measure(contenders, options);
    const diskSamples = timings['disk']!.samplesMs;
    const diskRate = sizeBytes / median(diskSamples) / 1e6;
    const from = isOfDisk ? 'disk' : 'page cache';
    for (const [name, { usefulBytes, readBytes }] of readings) {
      const samples = timings[name]!.samplesMs;
      // each run has its own set; neurons already in slots were not read
      const rates = (bytes: readonly number[]): readonly number[] => {
        const counted = bytes.slice(-samples.length);
        return samples.map((timeMs, round) => counted[round]! / timeMs / 1e6);
      };
      const common = { suite, unit: 'GB/s', ratioOf: `the ${from}, read sequentially` };
      const label = `cold ${layout} ${hiddenDim} x ${ffnDim} ${dtype}, ${name} active`;
      for (const [what, bytes] of [
        ['neurons', usefulBytes],
        ['with gaps', readBytes],
      ] as const) {
        const all = rates(bytes);
        const value = median(all);
        yield { ...common, case: `${label}, ${what}`, value, best: Math.max(...all), ratio: value / diskRate };
      }
    }
  } finally {
    for (const { cache } of readings.values()) await cache.close();
    await source.close();
    await raw.close();
    await rm(path, { force: true });
  }
}

interface Reading {
  readonly cache: NeuronCache;
  readonly run: () => Promise<number>;
  /** Per run: bytes of the neurons read, and all bytes. */
  readonly usefulBytes: number[];
  readonly readBytes: number[];
}

async function readingOf(
  pieces: readonly NeuronPiece[],
  numItems: number,
  count: number,
  rng: Rng,
  drop: () => Promise<void>,
): Promise<Reading> {
  const [{ dtype, valuesPerItem }] = pieces as readonly [NeuronPiece];
  const memories = pieces.map(() => new Uint8Array(count * sizeOf(dtype, valuesPerItem)));
  const cache = await createNeuronCache({
    layers: [{ numItems, pieces, slots: count }],
    slotMemory: (_, piece) => ({ view: () => memories[piece], write: () => Promise.resolve() }),
  });
  const rows = new Int32Array(count);
  const usefulBytes: number[] = [];
  const readBytes: number[] = [];
  return {
    cache,
    usefulBytes,
    readBytes,
    async run() {
      const ids = randomSet(numItems, count, rng);
      const before = cache.statistics();
      await drop();
      const startMs = performance.now();
      await cache.ensure(0, ids, count, rows);
      const timeMs = performance.now() - startMs;
      const after = cache.statistics();
      usefulBytes.push(after.usefulBytesRead - before.usefulBytesRead);
      readBytes.push(after.bytesRead - before.bytesRead);
      return timeMs;
    },
  };
}

/** `count` of the numbers below `numItems`, ascending. */
function randomSet(numItems: number, count: number, rng: Rng): Int32Array {
  const all = Int32Array.from({ length: numItems }, (_, item) => item);
  for (let at = 0; at < count; at++) {
    const other = at + rng.nextInt(numItems - at);
    [all[at], all[other]] = [all[other]!, all[at]!];
  }
  return all.slice(0, count).sort();
}

async function writeRandom(path: string, sizeBytes: number): Promise<void> {
  const rng = createRng(2);
  const block = new Uint8Array(Math.min(sizeBytes, 4 * 1024 * 1024)).map(() => rng.nextUint32());
  const file = await open(path, 'w');
  for (let at = 0; at < sizeBytes; at += block.length) {
    await file.write(block, 0, Math.min(block.length, sizeBytes - at), at);
  }
  await file.sync();
  await file.close();
}

/** Reads the whole file in large concurrent reads: the peak of the disk. */
async function readAll(file: FileHandle, sizeBytes: number, drop: () => Promise<void>): Promise<number> {
  const buffers = Array.from({ length: numRawReads }, () => new Uint8Array(rawReadBytes));
  await drop();
  const startMs = performance.now();
  let next = 0;
  const work = async (buffer: Uint8Array): Promise<void> => {
    for (let at = next; at < sizeBytes; at = next) {
      next += rawReadBytes;
      await file.read(buffer, 0, Math.min(rawReadBytes, sizeBytes - at), at);
    }
  };
  await Promise.all(buffers.map(work));
  return performance.now() - startMs;
}
