/** A sidecar as the tensors and the metadata of a safetensors file. */
import { bytesOf } from '../bytes.js';
import { sha256 } from './sha256.js';
import { estimatesOf, metadataKeys, sidecarVersion, type Sidecar, type SparseLayer } from './sidecar.js';
import { matrixTensors, type SidecarTensor } from './stored-matrix.js';

/** The input of `writeSafetensors` of `@winnow/safetensors`. */
export interface SidecarContent {
  readonly tensors: readonly SidecarTensor[];
  readonly metadata: Readonly<Record<string, string>>;
}

/** The same sidecar gives the same bytes. */
export function sidecarContent(sidecar: Sidecar): SidecarContent {
  const tensors = sidecar.layers.flatMap(layerTensors).sort((a, b) => (a.name < b.name ? -1 : 1));
  const content = JSON.stringify({
    version: sidecarVersion,
    modelHash: sidecar.modelHash,
    weightsChecksum: sidecar.weightsChecksum,
    config: sidecar.config,
    layers: sidecar.layers.map(layerJson),
  });
  return {
    tensors,
    metadata: { [metadataKeys.content]: content, [metadataKeys.checksum]: checksumOf(content, tensors) },
  };
}

/** The checksum of the metadata and of every tensor, in the order of their names. */
export function checksumOf(content: string, tensors: readonly SidecarTensor[]): string {
  const encoder = new TextEncoder();
  const pieces: Uint8Array[] = [encoder.encode(content)];
  for (const { name, dtype, shape, data } of tensors) {
    pieces.push(encoder.encode(`\n${name} ${dtype} ${shape.join('x')}\n`), data);
  }
  return `sha256:${sha256(pieces)}`;
}

function layerJson(layer: SparseLayer): unknown {
  const { predictor, downNorms: _norms, frequencies: _frequencies, rows: _rows, ...rest } = layer;
  const { kind } = predictor;
  return { ...rest, predictor: 'rank' in predictor ? { kind, rank: predictor.rank } : { kind } };
}

function layerTensors(layer: SparseLayer): SidecarTensor[] {
  const { predictor, downNorms, frequencies } = layer;
  const nameOf = (part: string): string => `layers.${layer.layer}.${part}`;
  const floats = (part: string, values: Float32Array): SidecarTensor => ({
    name: nameOf(part),
    dtype: 'f32',
    shape: [values.length],
    data: bytesOf(values),
  });
  const tensors = [
    floats('thresholds', predictor.thresholds),
    floats('down_norms', downNorms),
    floats('frequencies', frequencies),
  ];
  for (const [prefix, { p, q, bias }] of estimatesOf(predictor)) {
    tensors.push(...matrixTensors(nameOf(`${prefix}p`), p), ...matrixTensors(nameOf(`${prefix}q`), q));
    if (bias !== undefined) tensors.push(floats(`${prefix}bias`, bias));
  }
  if (predictor.kind === 'input-threshold') tensors.push(floats('input_thresholds', predictor.inputThresholds));
  return tensors;
}
