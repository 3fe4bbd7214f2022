/** Active neurons that are computed in several passes, from other slots, must give the bits of one pass. */
import { neuronGroup, ProgramBuilder, type Backend, type BufferHandle, type ProgramTensor } from '@winnow/ops';
import { dtypeInfo, type DType } from '@winnow/tensor';
import { compareExact } from '../compare.js';
import type { CaseTensor } from '../kernel-case.js';
import { gaussian, ints, randomTensor, rngOf } from '../values.js';
import type { CreateBackend } from './fixtures.js';

const dtypes: readonly DType[] = ['f32', 'f16', 'bf16', 'q8_0', 'q4_0', 'q4_K', 'q6_K', 'iq4_nl'];
const [numNeurons, hiddenDim] = [300, 256];
/** Token counts for the row, tile and batch paths of kernels. */
const tokenCounts = [1, 2, 3, 4, 9, 65];
/** Where passes end, in groups. */
const splits: readonly (readonly number[])[] = [[1], [5], [1, 2], [2, 3, 6, 8]];

/** The neurons of one pass and their rows. */
interface Pass {
  readonly ids: readonly number[];
  readonly rows: readonly number[];
}

type Tensors = Record<string, CaseTensor>;

/** `down(up(x) + bias)` of the neurons of all passes. */
async function runPasses(backend: Backend, weights: Tensors, passes: readonly Pass[]): Promise<Float32Array> {
  const b = new ProgramBuilder({});
  const tensors: Tensors = { ...weights };
  const external = (name: string): ProgramTensor => {
    const { dtype, shape } = tensors[name];
    return b.external(name, 'weights', dtype, shape);
  };
  let y: ProgramTensor | undefined;
  for (const [index, pass] of passes.entries()) {
    const words = (values: readonly number[], length: number): CaseTensor =>
      ints(
        [length],
        Array.from({ length }, (_, j) => values[j] ?? 0),
      );
    tensors[`ids${index}`] = words(pass.ids, numNeurons);
    tensors[`rows${index}`] = words(pass.rows, numNeurons);
    tensors[`count${index}`] = words([pass.ids.length], 1);
    const rows = external(`rows${index}`);
    const count = external(`count${index}`);
    const h = b.activation('sparse-matmul', {
      ...{ x: external('x'), weight: external('up'), rows, count },
      ...{ bias: external('bias'), ids: external(`ids${index}`) },
    });
    y = b.activation('sparse-combine', { h, weight: external('down'), rows, count, previous: y });
  }
  b.output('y', y as ProgramTensor);
  const buffers = new Map<string, BufferHandle>();
  for (const [name, { bytes }] of Object.entries(tensors)) {
    const handle = backend.allocate({ sizeBytes: bytes.length, usage: 'weights', label: name });
    await backend.write(handle, 0, bytes);
    buffers.set(name, handle);
  }
  const executable = await backend.prepare(b.build(), { buffers });
  await executable.run(new Int32Array(0));
  const result = new Float32Array(tensors['x'].shape[0] * hiddenDim);
  await executable.read('y', result);
  await executable.dispose();
  for (const handle of buffers.values()) backend.free(handle);
  return result;
}

/** The weights of each dtype, which take longer to draw than to use. */
const weightsByDType = new Map<DType, { readonly up: CaseTensor; readonly down: CaseTensor }>();

function weightsOf(dtype: DType): { readonly up: CaseTensor; readonly down: CaseTensor } {
  const rng = rngOf(`split sums ${dtype}`);
  const shape = [numNeurons, hiddenDim];
  const weights = weightsByDType.get(dtype) ?? {
    up: randomTensor(rng, dtype, shape),
    down: randomTensor(rng, dtype, shape),
  };
  weightsByDType.set(dtype, weights);
  return weights;
}

/** Row `rows[i]` is row i. */
function permuted({ dtype, shape, bytes }: CaseTensor, rows: readonly number[]): CaseTensor {
  const target = new Uint8Array(bytes.length);
  const rowBytes = bytes.length / rows.length;
  for (const [i, row] of rows.entries()) target.set(bytes.subarray(i * rowBytes, (i + 1) * rowBytes), row * rowBytes);
  return { dtype, shape, bytes: target };
}

/**
 * Every dtype is combined with every split, and with every number of tokens; combining all three repeats the same
 * paths.
 */
export async function checkSplitSums(create: CreateBackend): Promise<string[]> {
  const backend = await create();
  const failures: string[] = [];
  for (const [dtypeIndex, dtype] of dtypes.entries()) {
    if (failures.length > 0) break; // more take long and say nothing new
    for (const [index, numTokens] of tokenCounts.entries()) {
      // float weights are summed in one order from three tokens on
      if (!dtypeInfo(dtype).isQuantized && numTokens < 3) continue;
      const split = splits[(dtypeIndex + index) % splits.length];
      const failure = await checkSplit(backend, dtype, numTokens, split);
      if (failure !== undefined) failures.push(`${dtype}, ${numTokens} tokens, ${split.join(' ')}: ${failure}`);
    }
  }
  await backend.dispose();
  return failures;
}

/** @param split where passes end, in groups */
async function checkSplit(
  backend: Backend,
  dtype: DType,
  numTokens: number,
  split: readonly number[],
): Promise<string | undefined> {
  const rng = rngOf(`split sums ${dtype} ${numTokens}`);
  const { up, down } = weightsOf(dtype);
  const x = gaussian(rng, [numTokens, hiddenDim]);
  const bias = gaussian(rng, [numNeurons]);
  const rest = Array.from({ length: numNeurons }, (_, id) => id);
  const places = Array.from({ length: numNeurons }, () => rest.splice(rng.nextInt(rest.length), 1)[0]);
  const active = places.map((_, id) => id).filter((id) => id % 7 !== 3); // 257 of them
  const whole = await runPasses(backend, { up, down, x, bias }, [{ ids: active, rows: active }]);
  const ends = [...split.map((groups) => groups * neuronGroup), active.length];
  const passes = ends.map((end, index): Pass => {
    const ids = active.slice(index === 0 ? 0 : ends[index - 1], end);
    return { ids, rows: ids.map((id) => places[id]) };
  });
  passes.push({ ids: [], rows: [] }); // more passes than needed
  const moved = { up: permuted(up, places), down: permuted(down, places), x, bias };
  return compareExact(await runPasses(backend, moved, passes), whole);
}
