/**
 * Checks whether a configuration reproduces its tokens, and how much threads and backends change its log-probabilities.
 */
import type { Model } from '@winnow/engine';
import { baseConfiguration, openOptionsOf, type Configuration, type OpenModel } from '../configuration.js';

export interface DeterminismReport {
  readonly label: string;
  /** Whether two sampled generations with the same seed are identical. */
  readonly repeats: boolean;
  /** The same for one thread and two threads. */
  readonly sameForThreads: boolean;
  /** Largest difference of a log-probability between one thread and two threads. */
  readonly threadDifference: number;
  /** Largest difference of a log-probability between the backend and the reference. */
  readonly backendDifference: number;
  /**
   * Bound of the differences: `backendBound` plus the change that the configuration itself causes relative to dense
   * attention with an f32 cache. A rounding error that changes the selection of a key or a quantized code has at most
   * the effect of selection and quantization.
   */
  readonly bound: number;
  /** Whether all checks pass. */
  readonly isDeterministic: boolean;
}

export interface DeterminismOptions {
  readonly open: OpenModel;
  readonly tokens: Int32Array;
  readonly seed: number;
  readonly signal?: AbortSignal | undefined;
}

const numGenerated = 24;

/**
 * The effect of the order of f32 sums on a log-probability. Rounding changes a sum of n terms by at most n 2^-24 of the
 * sum of their magnitudes, about sqrt(n) 2^-24 of its value where roundings are independent; each of the `numLayers`
 * layers adds four such sums (attention, output projection, two of the FFN) to the residual stream, and the logits, of
 * magnitude below 32 in trained models, accumulate all of them. `slack` covers activations of magnitude above 1.
 */
export function backendBound({
  numLayers,
  hiddenDim,
}: {
  readonly numLayers: number;
  readonly hiddenDim: number;
}): number {
  const slack = 8;
  return 32 * slack * Math.sqrt(4 * numLayers + 1) * Math.sqrt(hiddenDim) * 2 ** -24;
}

/** Opens the configuration with one thread, with two, and on the reference; `tokens` should be few. */
export async function checkDeterminism(
  configuration: Configuration,
  { open, tokens, seed, signal }: DeterminismOptions,
): Promise<DeterminismReport> {
  const options = openOptionsOf(configuration, tokens.length + numGenerated);
  const one = await withModel(open, { ...options, threads: 1 }, (model) => observe(model, tokens, seed, signal));
  const two = await withModel(open, { ...options, threads: 2 }, (model) => observe(model, tokens, seed, signal));
  const reference = await withModel(open, { ...options, backend: 'reference' }, async (model) => ({
    rows: await rowsOf(model, tokens, signal),
    bound: backendBound(model.config),
  }));
  const dense = await withModel(open, { ...openOptionsOf(baseConfiguration, options.context), threads: 1 }, (model) =>
    rowsOf(model, tokens, signal),
  );
  const repeats = isSame(one.first, one.second) && isSame(two.first, two.second);
  const sameForThreads = isSame(one.first, two.first);
  const threadDifference = maxDifference(one.rows, two.rows);
  const backendDifference = maxDifference(two.rows, reference.rows);
  const bound = reference.bound + maxDifference(one.rows, dense);
  const isDeterministic = repeats && sameForThreads && threadDifference <= bound && backendDifference <= bound;
  return {
    label: configuration.label,
    repeats,
    sameForThreads,
    threadDifference,
    backendDifference,
    bound,
    isDeterministic,
  };
}

interface Observation {
  readonly first: readonly number[];
  readonly second: readonly number[];
  readonly rows: readonly Float32Array[];
}

async function observe(
  model: Model,
  tokens: Int32Array,
  seed: number,
  signal: AbortSignal | undefined,
): Promise<Observation> {
  const generate = async (): Promise<readonly number[]> => {
    const options = { maxTokens: numGenerated, temperature: 0.8, seed, ignoreEos: true };
    const generation = model.generate(tokens, signal === undefined ? options : { ...options, signal });
    return (await generation.result()).tokens;
  };
  return { first: await generate(), second: await generate(), rows: await rowsOf(model, tokens, signal) };
}

/** Rows of both phases: a prompt in one batch, then the same token by token; a few positions of each. */
async function rowsOf(model: Model, tokens: Int32Array, signal: AbortSignal | undefined): Promise<Float32Array[]> {
  const last = tokens.length - 1;
  const positions = [...new Set([Math.floor(last / 2), Math.max(0, last - 1), last])];
  const abort = signal === undefined ? {} : { signal };
  const rows = await model.logprobs(tokens, { positions, ...abort });
  return [...rows, ...(await model.logprobs(tokens, { positions, phase: 'decode', ...abort }))];
}

async function withModel<T>(
  open: OpenModel,
  options: Parameters<OpenModel>[0],
  use: (model: Model) => Promise<T>,
): Promise<T> {
  const model = await open(options);
  try {
    return await use(model);
  } finally {
    await model.dispose();
  }
}

function isSame(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((token, i) => token === b[i]);
}

function maxDifference(a: readonly Float32Array[], b: readonly Float32Array[]): number {
  let worst = 0;
  for (const [i, row] of a.entries()) {
    for (let id = 0; id < row.length; id++) worst = Math.max(worst, Math.abs(row[id] - b[i][id]));
  }
  return worst;
}
