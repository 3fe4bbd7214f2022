/** Reads a sidecar and rejects files that are damaged, of another model, or of a newer version. */
import type { TensorStore } from '@winnow/bytes';
import { activationKinds } from '@winnow/ops';
import {
  checkOptions,
  type DType,
  FormatError,
  JsonFields,
  type OptionNames,
  type Shape,
  tensorBytes,
} from '@winnow/tensor';
import { floatsOf } from '../bytes.js';
import type { FeedForwardShape } from '../blocks/feed-forward-weights.js';
import { checksumOf } from './sidecar-content.js';
import {
  metadataKeys,
  predictorKinds,
  sidecarVersion,
  type LayerReport,
  type LowRankEstimate,
  type PredictorTables,
  type Sidecar,
  type SidecarConfig,
  type SparseLayer,
  type StoredMatrix,
} from './sidecar.js';
import { readMatrix, type SidecarTensor } from './stored-matrix.js';

/** An open safetensors file, as `openSafetensors` of `@winnow/safetensors` returns it. */
export interface SidecarFile extends TensorStore {
  readonly metadata: ReadonlyMap<string, string>;
}

/** What a sidecar must match. */
export interface ReadSidecarOptions {
  /** Hash of the model. */
  readonly modelHash?: string;
  /** Blocks of that model by index; the sidecar may leave some out. */
  readonly shapes?: ReadonlyMap<number, FeedForwardShape>;
  readonly signal?: AbortSignal;
}

const readSidecarNames: OptionNames<ReadSidecarOptions> = { modelHash: true, shapes: true, signal: true };

/** Far more layers than any model has, and sizes whose products stay far below 2^53. */
const maxLayers = 4096;
const maxDim = 2 ** 22;
const maxCount = 2 ** 50;
const maxRank = 4096;

/**
 * Reads and checks all of a sidecar: version, sizes and checksum. The file stays open.
 * @throws {FormatError} for a file that is not a sidecar, is damaged, has a newer version, or belongs to another model
 * @throws {IoError} when reading fails
 */
export async function readSidecar(file: SidecarFile, options: ReadSidecarOptions = {}): Promise<Sidecar> {
  checkOptions(options, readSidecarNames);
  const fields = contentOf(file);
  const version = fields.integer('version', 1, maxCount);
  if (version > sidecarVersion) fields.refuse('version', `at most ${sidecarVersion} (made by a newer Winnow?)`);
  const modelHash = fields.text('modelHash');
  const tensors = await readTensors(file, options.signal);
  const checksum = checksumOf(file.metadata.get(metadataKeys.content) as string, tensors);
  if (file.metadata.get(metadataKeys.checksum) !== checksum) {
    const message = `expected ${checksum} for the contents of the file, found ${file.metadata.get(metadataKeys.checksum)}`;
    throw new FormatError({ source: file.name, field: metadataKeys.checksum, message: `${message} (damaged?)` });
  }
  if (options.modelHash !== undefined && modelHash !== options.modelHash) {
    const message = `expected the hash of the model, ${options.modelHash}, found ${modelHash} (calibrated for another model)`;
    throw new FormatError({ source: file.name, field: 'modelHash', message });
  }
  const byName = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  const layers: SparseLayer[] = [];
  let previous = -1;
  for (const entry of fields.objects('layers', maxLayers)) {
    const layer = await readLayer(entry, file.name, byName);
    if (layer.layer <= previous) entry.refuse('layer', `an index above ${previous}`);
    previous = layer.layer;
    checkShape(entry, layer, options.shapes);
    layers.push(layer);
  }
  if (layers.length === 0) fields.refuse('layers', 'at least one layer');
  const [unused] = byName.keys();
  if (unused !== undefined) {
    throw new FormatError({ source: file.name, field: unused, message: 'expected only tensors of the layers' });
  }
  const weightsChecksum = fields.has('weightsChecksum') ? { weightsChecksum: fields.text('weightsChecksum') } : {};
  return { modelHash, ...weightsChecksum, config: readConfig(fields.object('config')), layers };
}

function contentOf({ name: source, metadata }: SidecarFile): JsonFields {
  const field = metadataKeys.content;
  const text = metadata.get(field);
  if (text === undefined) {
    const message = 'expected this entry of the metadata, found none (not a sidecar)';
    throw new FormatError({ source, field, message });
  }
  try {
    return new JsonFields(JSON.parse(text), source, field);
  } catch (cause) {
    if (FormatError.isInstance(cause)) throw cause;
    throw new FormatError({ source, field, message: 'expected JSON' }, { cause });
  }
}

async function readTensors(file: SidecarFile, signal: AbortSignal | undefined): Promise<SidecarTensor[]> {
  const tensors: SidecarTensor[] = [];
  for (const tensor of file.tensors.values()) {
    const { name, dtype, shape, sizeBytes } = tensor;
    const data = new Uint8Array(sizeBytes);
    await tensor.read(data, signal === undefined ? {} : { signal });
    tensors.push({ name, dtype, shape, data });
  }
  return tensors.sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** Removes the tensors of the layer from the map. */
async function readLayer(entry: JsonFields, source: string, tensors: Map<string, SidecarTensor>): Promise<SparseLayer> {
  const layer = entry.integer('layer', 0, maxLayers);
  const hiddenDim = entry.integer('hiddenDim', 1, maxDim);
  const ffnDim = entry.integer('ffnDim', 1, maxDim);
  const take = (name: string, dtype: DType, shape: Shape): Promise<Uint8Array> => {
    const tensor = tensors.get(name);
    tensors.delete(name);
    const expected = `${dtype} [${shape.join(', ')}]`;
    const actual = tensor === undefined ? 'none' : `${tensor.dtype} [${tensor.shape.join(', ')}]`;
    if (tensor === undefined || expected !== actual || tensor.data.length !== tensorBytes(dtype, shape)) {
      throw new FormatError({ source, field: name, message: `expected a tensor ${expected}, found ${actual}` });
    }
    return Promise.resolve(tensor.data);
  };
  const file = { has: (name: string): boolean => tensors.has(name), read: take };
  const floats = async (part: string, length: number): Promise<Float32Array> => {
    const name = `layers.${layer}.${part}`;
    const values = floatsOf(await take(name, 'f32', [length]));
    if (values.some(Number.isNaN))
      throw new FormatError({ source, field: name, message: 'expected numbers, found NaN' });
    return values;
  };
  const readPredictor = async (fields: JsonFields): Promise<PredictorTables> => {
    const kind = fields.oneOf('kind', predictorKinds);
    const thresholds = await floats('thresholds', ffnDim);
    if (kind === 'gate-threshold') return { kind, thresholds };
    if (kind === 'input-threshold') {
      return { kind, thresholds, inputThresholds: await floats('input_thresholds', hiddenDim) };
    }
    const rank = fields.integer('rank', 32, maxRank);
    if (rank % 32 !== 0) fields.refuse('rank', 'a multiple of 32');
    const readPair = async (prefix: string): Promise<{ p: StoredMatrix; q: StoredMatrix }> => ({
      p: await readMatrix(`layers.${layer}.${prefix}p`, rank, hiddenDim, file),
      q: await readMatrix(`layers.${layer}.${prefix}q`, ffnDim, rank, file),
    });
    if (kind === 'low-rank') return { kind, rank, ...(await readPair('')), thresholds };
    if (!entry.boolean('isGated')) fields.refuse('kind', 'another one for blocks without a gate');
    const readEstimate = async (part: 'gate' | 'up'): Promise<LowRankEstimate> => {
      const pair = await readPair(`${part}.`);
      const hasBias = tensors.has(`layers.${layer}.${part}.bias`);
      return hasBias ? { ...pair, bias: await floats(`${part}.bias`, ffnDim) } : pair;
    };
    return { kind, rank, gate: await readEstimate('gate'), up: await readEstimate('up'), thresholds };
  };
  return {
    layer,
    hiddenDim,
    ffnDim,
    activation: entry.oneOf('activation', activationKinds),
    isGated: entry.boolean('isGated'),
    contributionThreshold: entry.number('contributionThreshold', 0, Number.MAX_VALUE),
    report: readReport(entry.object('report')),
    predictor: await readPredictor(entry.object('predictor')),
    downNorms: await floats('down_norms', ffnDim),
    frequencies: await floats('frequencies', ffnDim),
  };
}

function readReport(fields: JsonFields): LayerReport {
  const share = (name: string): number => fields.number(name, 0, 1);
  return {
    numTokens: fields.integer('numTokens', 0, maxCount),
    trueRatio: share('trueRatio'),
    activeRatio: share('activeRatio'),
    inputRatio: share('inputRatio'),
    recall: share('recall'),
    precision: share('precision'),
    energy: share('energy'),
    cosine: fields.number('cosine', -1, 1),
    denseBytes: fields.number('denseBytes', 0, maxCount),
    sparseBytes: fields.number('sparseBytes', 0, maxCount),
  };
}

function readConfig(fields: JsonFields): SidecarConfig {
  const target = fields.object('target');
  return {
    numSamples: fields.integer('numSamples', 0, maxCount),
    numTokens: fields.integer('numTokens', 0, maxCount),
    seed: fields.integer('seed', Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER),
    energyShare: fields.number('energyShare', 0, 1),
    target: target.has('recall')
      ? { recall: target.number('recall', 0, 1) }
      : { sparsity: target.number('sparsity', 0, 1) },
    rank: fields.integer('rank', 0, maxRank),
    epochs: fields.number('epochs', 0, maxCount),
    learningRate: fields.number('learningRate', 0, 1e6),
  };
}

function checkShape(
  entry: JsonFields,
  { layer, hiddenDim, ffnDim, activation, isGated }: SparseLayer,
  shapes: ReadonlyMap<number, FeedForwardShape> | undefined,
): void {
  if (shapes === undefined) return;
  const shape = shapes.get(layer);
  if (shape === undefined) return entry.refuse('layer', 'a layer of the model with an FFN');
  if (hiddenDim !== shape.hiddenDim) entry.refuse('hiddenDim', `${shape.hiddenDim}, as in the model`);
  if (ffnDim !== shape.ffnDim) entry.refuse('ffnDim', `${shape.ffnDim}, as in the model`);
  if (activation !== shape.activation) entry.refuse('activation', `${shape.activation}, as in the model`);
  if (isGated !== shape.isGated) entry.refuse('isGated', `${shape.isGated}, as in the model`);
}
