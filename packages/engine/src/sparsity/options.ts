/** The options of sparse FFNs, and the host functions that they need. */
import { blobSource, httpSource, memorySource, type ByteSource } from '@winnow/bytes';
import { feedForwardNames, ffnDimOf, type EmbedderDescription, type ModelFile } from '@winnow/models';
import type { Backend } from '@winnow/ops';
import { openSafetensors } from '@winnow/safetensors';
import { readSidecar, type Sidecar } from '@winnow/sparse-inference';
import { ArgumentError, FormatError, type OptionNames } from '@winnow/tensor';
import type { TraceOptions } from '../memory/step-outputs.js';
import { createSparseWeights, type SparseWeights } from './sparse-weights.js';
import { weightsChecksum, weightsHash } from './weights-hash.js';

/**
 * A calibration (`*.sparse.safetensors`): a path or URL, bytes, a Blob, an open file (which Winnow then owns), or a
 * sidecar that was already read. Paths need Node.
 */
export type SidecarSource = FileSource | Sidecar;

/** How FFN neurons are skipped. */
export interface SparsityOptions {
  /**
   * A calibration of the model, which determines the FFN neurons to skip. A calibration of other weights is rejected.
   * Default: none, all neurons are computed.
   */
  readonly calibration?: SidecarSource;
  /**
   * Share of active neurons, from 0 to 1, above which a layer runs dense: its mean in the calibration, and its share in
   * a step. 1: never. Default: the break-even ratios of the backend, for layers and for steps of several tokens.
   */
  readonly maxActive?: number;
  /**
   * Select neurons by their exact contributions, which computes all of them: an upper bound for predictors. Default
   * false.
   */
  readonly oracle?: boolean;
  /**
   * What skips neurons: the whole model, or only the drafts of `speculative: 'self=POLICY'`, so that the output is that of all neurons.
   * FFN weights that drafts read in another layout are then in memory twice. Default `model`.
   */
  readonly use?: 'model' | 'drafts';
  /**
   * Read all weights before loading and compare their checksum with that of the calibration, so that a damaged file is
   * rejected. Default false: compare a hash of samples of every tensor, which detects other models and versions.
   */
  readonly verify?: boolean;
}

export const sparsityNames: OptionNames<SparsityOptions> = {
  calibration: true,
  maxActive: true,
  oracle: true,
  use: true,
  verify: true,
};

/** The options that `openSparse` reads. */
interface SparseLoadOptions {
  readonly sparsity?: SparsityOptions;
  readonly trace?: TraceOptions;
  readonly fetch?: typeof fetch;
  readonly signal?: AbortSignal;
}

/** The files of the host. */
export interface SidecarHost {
  readonly openFile?: (path: string | URL) => Promise<ByteSource>;
}

/** A file that belongs to a model, or its bytes. */
export type FileSource = string | URL | Uint8Array | Blob | ByteSource;

/** @param argument the option that names the file */
export async function openFileSource(
  argument: string,
  source: FileSource,
  { openFile }: SidecarHost,
  request: typeof fetch | undefined,
): Promise<ByteSource> {
  if (source instanceof Uint8Array) return memorySource(source, argument);
  if (source instanceof Blob) return blobSource(source);
  if (typeof source !== 'string' && !(source instanceof URL)) return source;
  if (/^https?:/i.test(String(source))) {
    return httpSource(new URL(source), request === undefined ? {} : { fetch: request });
  }
  if (openFile !== undefined) return openFile(source);
  throw new ArgumentError({ argument, expected: 'an http(s) URL, bytes or a Blob', actual: String(source) });
}

function isSidecar(source: SidecarSource): source is Sidecar {
  return typeof source === 'object' && 'layers' in source && 'modelHash' in source;
}

/**
 * Opens the sidecar of the options, and adds its tables to the weights.
 * @throws {FormatError} for a damaged one or one of another model
 * @throws {IoError} when it cannot be read
 * @throws {ArgumentError} for options that would have no effect
 */
export async function openSparse(
  { config, weights }: EmbedderDescription,
  { store }: ModelFile,
  options: SparseLoadOptions,
  host: SidecarHost,
  backend: Pick<Backend, 'breakEvenRatio'>,
): Promise<SparseWeights | undefined> {
  const { sparsity = {}, signal } = options;
  const { calibration: source, use = 'model' } = sparsity;
  if (use !== 'model' && use !== 'drafts') {
    throw new ArgumentError({ argument: 'sparsity.use', expected: 'model | drafts', actual: String(use) });
  }
  if (source === undefined) {
    refuseFields('sparsity', sparsity, 'sparsity.calibration');
    return undefined;
  }
  if (options.trace?.feedForward === true) {
    throw new ArgumentError({ argument: 'trace.feedForward', expected: 'false with a calibration', actual: 'true' });
  }
  const withSignal = signal === undefined ? {} : { signal };
  const modelHash = await weightsHash(store, withSignal);
  const sidecar = isSidecar(source) ? source : await readSource(source);
  if (sidecar.modelHash !== modelHash) {
    const message = `expected the hash of the model, ${modelHash}, found ${sidecar.modelHash} (calibrated for another model)`;
    throw new FormatError({ source: 'sparsity.calibration', field: 'modelHash', message });
  }
  if (sparsity.verify === true) await verifyWeights(sidecar, store.name, () => weightsChecksum(store, withSignal));
  return createSparseWeights(sidecar, weights, config.numLayers, backend, sparsity);

  async function readSource(from: Exclude<SidecarSource, Sidecar>): Promise<Sidecar> {
    const bytes = await openFileSource('sparsity.calibration', from, host, options.fetch);
    try {
      const file = await openSafetensors(bytes, withSignal);
      return await readSidecar(file, { modelHash, shapes: shapesOf(config, weights), ...withSignal });
    } finally {
      await bytes.close();
    }
  }
}

/** @throws {ArgumentError} for a calibration that is only for drafts, when there are no drafts */
export function refuseDraftsOnly(sparse: SparseWeights | undefined): void {
  if (sparse?.isForDrafts !== true) return;
  const expected = "model, unless speculative is 'self=POLICY'";
  throw new ArgumentError({ argument: 'sparsity.use', expected, actual: 'drafts' });
}

/** @throws {ArgumentError} for options that depend on the option `missing`, which is not set */
export function refuseFields(option: string, fields: object, missing: string): void {
  const [first] = Object.entries(fields).filter(([, value]) => value !== undefined);
  if (first === undefined) return;
  const [argument, expected] = [`${option}.${first[0]}`, `nothing without ${missing}`];
  throw new ArgumentError({ argument, expected, actual: String(first[1]) });
}

/** @throws {FormatError} for weights other than those of the calibration, and for calibrations without a checksum */
async function verifyWeights(
  { weightsChecksum: expected }: Sidecar,
  source: string,
  checksumOf: () => Promise<string>,
): Promise<void> {
  if (expected === undefined) {
    const message = 'expected a checksum of all weights, found none: calibrate again';
    throw new FormatError({ source: 'sparsity.calibration', field: 'weightsChecksum', message });
  }
  const actual = await checksumOf();
  if (actual === expected) return;
  const message = `expected ${expected}, as calibrated, found ${actual} (damaged?)`;
  throw new FormatError({ source, field: 'weights', message });
}

/** The FFN shapes of the model, which a sidecar must match. */
function shapesOf(
  config: EmbedderDescription['config'],
  weights: EmbedderDescription['weights'],
): Map<number, { hiddenDim: number; ffnDim: number; activation: typeof activation; isGated: boolean }> {
  const { numLayers, hiddenDim, activation } = config;
  const shapes = new Map();
  for (let layer = 0; layer < numLayers; layer++) {
    const { gate, up } = feedForwardNames(layer);
    if (!weights.has(`${up}.weight`)) continue;
    const ffnDim = ffnDimOf(config, layer);
    shapes.set(layer, { hiddenDim, ffnDim, activation, isGated: weights.has(`${gate}.weight`) });
  }
  return shapes;
}
