/** Unknown options are errors that name the nearest known one. */
import { createReferenceBackend } from '@winnow/ops';
import { UnknownOptionError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import {
  calibrate,
  createFeedForwardLowering,
  createNeuronCache,
  NeuronPredictor,
  planNeuronTiers,
  readSidecar,
  type CalibrationSource,
  type PredictedLayer,
  type Sidecar,
  type SidecarFile,
} from './index.js';

/** A misspelled option, as passed by untyped code. */
const unknown: object = { singal: undefined };
const backend = createReferenceBackend();
const slotMemory = (): never => {
  throw new Error('there is no layer');
};

test.each<[name: string, call: () => unknown]>([
  ['NeuronPredictor.create', () => NeuronPredictor.create({} as PredictedLayer, { ...unknown, backend })],
  ['calibrate', () => calibrate({ layers: [] } as object as CalibrationSource, { ...unknown, backend, samples: [] })],
  ['createFeedForwardLowering', () => createFeedForwardLowering({ layers: [] } as object as Sidecar, unknown)],
  ['createNeuronCache', () => createNeuronCache({ ...unknown, layers: [], slotMemory })],
  ['planNeuronTiers', () => planNeuronTiers({ ...unknown, budgetBytes: 0, layers: [] })],
  ['readSidecar', () => readSidecar({ metadata: new Map() } as object as SidecarFile, unknown)],
])('%s', async (_name, call) => {
  await expect((async () => call())()).rejects.toThrow(UnknownOptionError);
});
