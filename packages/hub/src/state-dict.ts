/** Opens the state dict of a layer, as written by `torch.save`. Only tensors are read; code in the file is not executed. */
import { readBytes, sliceSource, type ByteSource, type StoredTensor, type TensorStore } from '@winnow/bytes';
import { dtypeInfo, FormatError, formatShape, type DType } from '@winnow/tensor';
import { MAX_PICKLE_BYTES } from './limits.js';
import { PickledCall, PickledName, PickledReference, readPickle, type PickleValue } from './pickle.js';
import { readZipEntries, type ZipEntry } from './zip.js';

const storages: ReadonlyMap<string, DType> = new Map([
  ['torch FloatStorage', 'f32'],
  ['torch HalfStorage', 'f16'],
  ['torch BFloat16Storage', 'bf16'],
  ['torch DoubleStorage', 'f64'],
  ['torch LongStorage', 'i64'],
  ['torch IntStorage', 'i32'],
  ['torch ShortStorage', 'i16'],
  ['torch CharStorage', 'i8'],
]);

const rebuildTensor = 'torch._utils _rebuild_tensor_v2';
const rebuildParameter = 'torch._utils _rebuild_parameter';

/**
 * Reads the names, dtypes and shapes of the tensors; their data is only read by `StoredTensor.read`. The store takes ownership of
 * the source: `close` closes it, and so does a failure to open.
 * @throws {FormatError} for a file that is not a ZIP archive with the pickle of a state dict, and for anything in it besides
 *   row-major tensors of floats and integers
 */
export async function openStateDict(
  source: ByteSource,
  options: { readonly signal?: AbortSignal } = {},
): Promise<TensorStore> {
  try {
    const entries = await readZipEntries(source, options);
    const pickle = pickleOf(source.name, entries);
    const folder = pickle.name.slice(0, pickle.name.lastIndexOf('/') + 1);
    await checkByteOrder(source, entries.get(`${folder}byteorder`), options);
    const bytes = await readBytes(source, pickle.byteOffset, pickle.sizeBytes, options);
    const root = readPickle(bytes, source.name);
    if (!(root instanceof Map)) throw refusal(source.name, 'data.pkl', 'expected a state dict');
    const tensors = new Map<string, StoredTensor>();
    for (const [name, value] of root) {
      if (typeof name !== 'string') throw refusal(source.name, 'data.pkl', 'expected names of tensors');
      tensors.set(
        name,
        tensorOf(source, name, value, (key) => entries.get(`${folder}data/${key}`)),
      );
    }
    return { name: source.name, tensors, close: () => source.close() };
  } catch (error) {
    await source.close();
    throw error;
  }
}

function refusal(source: string, field: string, message: string): FormatError {
  return new FormatError({ source, field: field.slice(0, 200), message });
}

function pickleOf(source: string, entries: ReadonlyMap<string, ZipEntry>): ZipEntry {
  const [pickle, ...others] = [...entries.values()].filter(({ name }) => /^[^/]*\/data\.pkl$/.test(name));
  if (pickle === undefined || others.length > 0) {
    throw refusal(source, 'data.pkl', `expected one pickle, got ${others.length + Number(pickle !== undefined)}`);
  }
  if (pickle.sizeBytes <= MAX_PICKLE_BYTES) return pickle;
  throw refusal(source, 'data.pkl', `expected at most ${MAX_PICKLE_BYTES} bytes, got ${pickle.sizeBytes}`);
}

/** Files of older versions do not have the entry and are little-endian. */
async function checkByteOrder(
  source: ByteSource,
  entry: ZipEntry | undefined,
  options: { readonly signal?: AbortSignal },
): Promise<void> {
  if (entry === undefined) return;
  const bytes = await readBytes(source, entry.byteOffset, Math.min(entry.sizeBytes, 16), options);
  const order = new TextDecoder().decode(bytes);
  if (order !== 'little') throw refusal(source.name, 'byteorder', `expected little, got ${JSON.stringify(order)}`);
}

function tensorOf(
  source: ByteSource,
  name: string,
  value: PickleValue,
  entryOf: (key: string) => ZipEntry | undefined,
): StoredTensor {
  const fail = (message: string): never => {
    throw refusal(source.name, name, message);
  };
  const isParameter = value instanceof PickledCall && value.name === rebuildParameter;
  const tensor = isParameter ? value.args[0] : value;
  if (!(tensor instanceof PickledCall) || tensor.name !== rebuildTensor) return fail('expected a tensor');
  const [reference, offset, size, strides] = tensor.args;
  if (!(reference instanceof PickledReference) || !Array.isArray(reference.id)) return fail('expected a storage');
  const [kind, type, key] = reference.id;
  const typeName = type instanceof PickledName ? type.name : '';
  const dtype = storages.get(typeName);
  if (kind !== 'storage' || dtype === undefined) {
    return fail(`expected one of ${[...storages.keys()].join(', ')}, got ${JSON.stringify(typeName.slice(0, 60))}`);
  }
  if (!isCounts(size) || !isCounts(strides) || !isCounts([offset]))
    return fail('expected a shape, strides and an offset');
  if (!isRowMajor(size, strides)) return fail(`expected a row-major tensor, got strides ${formatShape(strides)}`);
  const valueBytes = dtypeInfo(dtype).blockBytes;
  const sizeBytes = size.reduce((product, length) => product * length, valueBytes);
  const begin = (offset as number) * valueBytes;
  const entry = typeof key === 'string' ? entryOf(key) : undefined;
  if (entry === undefined) return fail('expected its storage in the archive, got none');
  if (!(begin + sizeBytes <= entry.sizeBytes)) {
    return fail(`expected at most the ${entry.sizeBytes} bytes of its storage, got ${begin + sizeBytes}`);
  }
  const data = sliceSource(source, entry.byteOffset + begin, sizeBytes);
  return {
    ...{ name, dtype, shape: size, sizeBytes },
    read: (target, { byteOffset = 0, ...rest } = {}) => data.read(byteOffset, target, rest),
  };
}

function isCounts(value: PickleValue | undefined | readonly unknown[]): value is number[] {
  return Array.isArray(value) && value.every((count) => Number.isSafeInteger(count) && (count as number) >= 0);
}

/** Strides of axes of length 1 do not matter. */
function isRowMajor(size: readonly number[], strides: readonly number[]): boolean {
  if (size.length !== strides.length) return false;
  let step = 1;
  for (let axis = size.length - 1; axis >= 0; axis--) {
    if (size[axis] !== 1 && strides[axis] !== step) return false;
    step *= size[axis] as number;
  }
  return true;
}
