/** An unfinished calibration as a safetensors file. */
import { dtypeInfo, FormatError, JsonFields } from '@winnow/tensor';
import { bytesOf } from '../bytes.js';
import type { SidecarFile } from '../sidecar/read-sidecar.js';
import { checksumOf, type SidecarContent } from '../sidecar/sidecar-content.js';
import type { SidecarTensor } from '../sidecar/stored-matrix.js';
import type { LayerState } from './layer-state.js';

/** Where a calibration stores its state. The caller chooses the location and removes it at the end. */
export interface CheckpointStore {
  /** Opens the last saved state; undefined if there is none. The calibration closes it. */
  load(): Promise<SidecarFile | undefined>;
  /** Replaces the saved state atomically. */
  save(content: SidecarContent): Promise<void>;
}

/** The position of a calibration: the number of finished groups of `phase`. */
export interface CalibrationPosition {
  phase: number;
  group: number;
}

const key = 'winnow.calibration';
const checksumKey = 'winnow.checksum';

export function checkpointContent(
  fingerprint: string,
  position: CalibrationPosition,
  layers: readonly LayerState[],
): SidecarContent {
  const tensors: SidecarTensor[] = [];
  for (const { shape, arrays } of layers) {
    for (const [name, array] of arrays) {
      const dtype = array instanceof Float64Array ? 'f64' : 'f32';
      tensors.push({ name: `${shape.layer}.${name}`, dtype, shape: [array.length], data: bytesOf(array) });
    }
  }
  tensors.sort((a, b) => (a.name < b.name ? -1 : 1));
  const numbers = layers.map((layer) => Object.fromEntries([...layer.numbers].map(([name, x]) => [name, exact(x)])));
  const content = JSON.stringify({ fingerprint, position, numbers });
  return { tensors, metadata: { [key]: content, [checksumKey]: checksumOf(content, tensors) } };
}

/** JSON has no infinity; all other numbers round-trip exactly. */
function exact(x: number): number | string {
  return Number.isFinite(x) ? x : String(x);
}

/**
 * Fills the layers from a checkpoint.
 * @returns its position; undefined if it belongs to other options, texts or weights
 * @throws {FormatError} when it is damaged
 */
export async function restoreCheckpoint(
  file: SidecarFile,
  fingerprint: string,
  layers: readonly LayerState[],
): Promise<CalibrationPosition | undefined> {
  const source = file.name;
  const text = file.metadata.get(key);
  if (text === undefined) throw new FormatError({ source, field: key, message: 'expected a checkpoint, found none' });
  const fields = parse(text, source);
  if (fields.text('fingerprint') !== fingerprint) return undefined;
  const tensors: SidecarTensor[] = [];
  for (const stored of [...file.tensors.values()].sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const data = new Uint8Array(stored.sizeBytes);
    await stored.read(data);
    tensors.push({ name: stored.name, dtype: stored.dtype, shape: stored.shape, data });
  }
  if (file.metadata.get(checksumKey) !== checksumOf(text, tensors)) {
    throw new FormatError({ source, field: checksumKey, message: 'expected the checksum of the contents (damaged?)' });
  }
  const numbers = (JSON.parse(text) as { numbers: Record<string, number | string>[] }).numbers;
  for (const [index, layer] of layers.entries()) {
    for (const [name, value] of Object.entries(numbers[index] ?? {})) layer.numbers.set(name, Number(value));
  }
  const byIndex = new Map(layers.map((layer) => [String(layer.shape.layer), layer]));
  for (const { name, dtype, data } of tensors) {
    const dot = name.indexOf('.');
    const { buffer } = data.slice();
    const array = dtypeInfo(dtype).name === 'f64' ? new Float64Array(buffer) : new Float32Array(buffer);
    byIndex.get(name.slice(0, dot))?.arrays.set(name.slice(dot + 1), array);
  }
  const position = fields.object('position');
  return { phase: position.integer('phase', 0, 4), group: position.integer('group', 0, 2 ** 40) };
}

function parse(text: string, source: string): JsonFields {
  try {
    return new JsonFields(JSON.parse(text), source, key);
  } catch (cause) {
    if (FormatError.isInstance(cause)) throw cause;
    throw new FormatError({ source, field: key, message: 'expected JSON' }, { cause });
  }
}
