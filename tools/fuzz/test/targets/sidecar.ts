/** Calibrations: the tree of their JSON with a matching checksum, the header of the file, and the bytes. */
import { createHash } from 'node:crypto';
import { memorySink, memorySource } from '@winnow/bytes';
import { openSafetensors, writeSafetensors } from '@winnow/safetensors';
import { readSidecar, sidecarContent, type Sidecar, type SparseLayer } from '@winnow/sparse-inference';
import { mutateJsonText, type Random } from '@winnow/test-utils';
import type { Target } from '../../src/target.ts';
import { createTarget as createSafetensorsTarget, fileOf, partsOf } from './safetensors.ts';

const contentKey = 'winnow.sparse';
const checksumKey = 'winnow.checksum';

type Header = Record<string, { dtype: string; shape: number[]; data_offsets: [number, number] }> & {
  __metadata__: Record<string, string>;
};

/** The checksum that the reader expects. */
function checksumOf(content: string, header: Header, data: Uint8Array): string {
  const hash = createHash('sha256').update(content);
  for (const name of Object.keys(header)
    .filter((key) => key !== '__metadata__')
    .sort()) {
    const { dtype, shape, data_offsets: offsets } = header[name] as Header[string];
    hash.update(`\n${name} ${dtype.toLowerCase()} ${shape.join('x')}\n`).update(data.subarray(...offsets));
  }
  return `sha256:${hash.digest('hex')}`;
}

function mutateContent(random: Random, input: Uint8Array): Uint8Array | undefined {
  const parts = partsOf(input);
  const header = parts?.header as Header | undefined;
  const content = header?.['__metadata__']?.[contentKey];
  if (parts === undefined || header === undefined || typeof content !== 'string') return undefined;
  try {
    const changed = mutateJsonText(random, content);
    const metadata = { [contentKey]: changed, [checksumKey]: checksumOf(changed, header, parts.data) };
    return fileOf(JSON.stringify({ ...header, __metadata__: metadata }), parts.data);
  } catch {
    return undefined; // the header is damaged already
  }
}

const layer: SparseLayer = {
  ...{ layer: 0, hiddenDim: 32, ffnDim: 4, activation: 'relu', isGated: true, contributionThreshold: 0.1 },
  predictor: { kind: 'gate-threshold', thresholds: new Float32Array(4).fill(0.5) },
  downNorms: new Float32Array(4).fill(1),
  frequencies: new Float32Array(4).fill(0.1),
  report: {
    ...{ numTokens: 100, trueRatio: 0.05, activeRatio: 0.1, inputRatio: 1, recall: 0.95, precision: 0.5, energy: 0.98 },
    ...{ cosine: 0.99, denseBytes: 1536, sparseBytes: 154 },
  },
};

export async function createTarget(): Promise<Target> {
  const { mutate } = await createSafetensorsTarget();
  const config: Sidecar['config'] = {
    ...{ numSamples: 10, numTokens: 1000, seed: 1, energyShare: 0.95, target: { recall: 0.95 } },
    ...{ rank: 32, epochs: 4, learningRate: 0.003 },
  };
  const sink = memorySink();
  await writeSafetensors(sink, sidecarContent({ modelHash: 'xxh:1', config, layers: [layer] }));
  return {
    examples: [sink.toBytes().slice()],
    mutate: (random, input) => (random.nextInt(4) > 0 && mutateContent(random, input)) || mutate(random, input),
    async run(input) {
      await readSidecar(await openSafetensors(memorySource(input, 'fuzz.sparse')));
    },
  };
}
