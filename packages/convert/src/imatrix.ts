/**
 * Importance matrices of llama.cpp (`llama-imatrix`, GGUF): the sum of squared activations of each input column of a matrix, by
 * which quantization weights the squared errors of the column. Format: `save_imatrix` of tools/imatrix/imatrix.cpp at commit
 * 006e7ef9913f4ed2dc7ebc00890f4e287b6cfcea of https://github.com/ggml-org/llama.cpp.
 */
import type { ByteSource, StoredTensor } from '@winnow/bytes';
import { openGguf, type GgufFile } from '@winnow/gguf';
import { FormatError, numElements, type Shape } from '@winnow/tensor';

/** The importance of the input columns of each matrix, by the name of its tensor in GGUF files. */
export interface ImportanceMatrix {
  /** Name of the file in messages. */
  readonly source: string;
  /** Means of squared activations, `[numMatrices, numColumns]`; all matrices of a stack of experts may share one row. */
  readonly columns: ReadonlyMap<string, Float32Array>;
}

const [sumsSuffix, countsSuffix] = ['.in_sum2', '.counts'];

/**
 * Reads an importance matrix; `source` stays open.
 * @throws {FormatError} for other files, and for sums or counts that are missing, negative or not finite
 */
export async function readImportanceMatrix(
  source: ByteSource,
  options: { readonly signal?: AbortSignal } = {},
): Promise<ImportanceMatrix> {
  const gguf = await openGguf(source, options).catch((error: unknown) => {
    if (!FormatError.isInstance(error) || error.field !== 'magic') throw error;
    const message =
      'expected a GGUF file; llama-imatrix converts older importance matrices (--in-file, --output-format gguf)';
    throw new FormatError({ source: source.name, field: 'magic', message }, { cause: error });
  });
  const type = gguf.metadata.getString('general.type', 'model');
  if (type !== 'imatrix') throw gguf.metadata.error('general.type', `expected imatrix, got ${type}`);
  const columns = new Map<string, Float32Array>();
  for (const tensor of gguf.tensors.values()) {
    if (!tensor.name.endsWith(sumsSuffix)) continue;
    const name = tensor.name.slice(0, -sumsSuffix.length);
    const means = await meansOf(gguf, tensor, name, options);
    if (means !== undefined) columns.set(name, means);
  }
  if (columns.size === 0) {
    throw new FormatError({
      source: source.name,
      field: sumsSuffix,
      message: 'expected sums of activations, got none',
    });
  }
  return { source: source.name, columns };
}

/** Sums divided by their counts; 1 for experts that saw no token. `undefined` if no matrix of the tensor saw any. */
async function meansOf(
  gguf: GgufFile,
  tensor: StoredTensor,
  name: string,
  options: { readonly signal?: AbortSignal },
): Promise<Float32Array | undefined> {
  const fail = (field: string, message: string): never => {
    throw new FormatError({ source: gguf.name, field, message });
  };
  const counted = gguf.tensors.get(name + countsSuffix) ?? fail(name + countsSuffix, 'missing');
  const [sums, counts] = [await readFloats(tensor, options, fail), await readFloats(counted, options, fail)];
  const numColumns = sums.length / counts.length;
  if (!Number.isInteger(numColumns)) fail(name, `expected sums of ${counts.length} matrices, got ${sums.length} sums`);
  if (counts.every((count) => count === 0)) return undefined;
  return sums.map((sum, index) => {
    const count = counts[Math.floor(index / numColumns)] as number;
    return count === 0 ? 1 : sum / count;
  });
}

async function readFloats(
  tensor: StoredTensor,
  options: { readonly signal?: AbortSignal },
  fail: (field: string, message: string) => never,
): Promise<Float32Array> {
  if (tensor.dtype !== 'f32') fail(tensor.name, `expected f32, got ${tensor.dtype}`);
  const values = new Float32Array(numElements(tensor.shape));
  await tensor.read(new Uint8Array(values.buffer), options);
  const wrong = values.find((value) => !(value >= 0 && value < Infinity));
  if (values.length === 0) fail(tensor.name, 'expected values, got none');
  if (wrong !== undefined) fail(tensor.name, `expected finite numbers from 0, got ${wrong}`);
  return values;
}

/** Minimum importance of a column as a share of the mean, so that columns that no token used are still quantized well. */
const minShare = 1e-4;

/**
 * Names under which the importance of a tensor can be stored: its own, and those of the parts of a fused matrix, which are
 * collected separately but share their inputs.
 */
export function importanceNames(name: string): readonly string[] {
  if (name.includes('attn_qkv'))
    return [name, ...['attn_q', 'attn_k', 'attn_v'].map((part) => name.replace('attn_qkv', part))];
  return name.includes('ffn_up') ? [name, name.replace('ffn_up', 'ffn_gate')] : [name];
}

/**
 * The weights of the columns of a tensor `[..., numColumns]` that is about to be quantized; `undefined` if the file has none.
 * @throws {FormatError} when the importance belongs to a matrix of another shape
 */
export function importanceOf(
  { source, columns }: ImportanceMatrix,
  name: string,
  shape: Shape,
): Float32Array | undefined {
  const means = importanceNames(name)
    .map((each) => columns.get(each))
    .find((found) => found !== undefined);
  if (means === undefined) return undefined;
  const numColumns = shape.at(-1) ?? 0;
  const numMatrices = shape.length > 2 ? numElements(shape.slice(0, -2)) : 1;
  if (means.length !== numColumns && means.length !== numMatrices * numColumns) {
    const message = `expected importances of ${numMatrices} x ${numColumns} columns, got ${means.length}: it is of another model`;
    throw new FormatError({ source, field: name, message });
  }
  const mean = means.reduce((sum, value) => sum + value, 0) / means.length;
  return mean === 0 ? undefined : means.map((value) => value + minShare * mean);
}
