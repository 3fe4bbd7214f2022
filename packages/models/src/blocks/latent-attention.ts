/**
 * Multi-head latent attention (arXiv:2405.04434 §2.1). For each token, `[c | r] = A x` is a latent of `latentDim` values and a
 * rotary part of `rotaryDim`; the keys and values of head h are `[K_h c | r]` and `V_h c` with `c = rms(c)`. Because
 * `q · K_h c = (K_h^T q) · c`, queries are projected into the latent space instead ("absorbed"): a single KV head holds `[c | r]`
 * as keys and `c` as values for all query heads, and `V_h` is applied after the attention. Attention policies therefore score latents.
 */
import type { ProgramTensor } from '@winnow/ops';
import type { WeightRequest } from '../file/weights.js';
import type { ModelFile } from '../program/architecture.js';
import type { DecoderConfig } from '../program/config.js';
import type { DecoderStep } from '../program/decoder-program.js';
import { tensorNames, type Bias } from '../program/tensors.js';
import { linear, normWithEps, rowPerToken } from './decoder-blocks.js';
import type { Rotary } from './rotary.js';

/** Sizes of latent attention. The head size of the cache is `latentDim + rotaryDim`. */
export interface LatentSizes {
  readonly latentDim: number;
  /** Rotated values of each query and key. */
  readonly rotaryDim: number;
  /** Other values of each query. */
  readonly plainDim: number;
  readonly valueDim: number;
  /** Size of the queries' latent; 0: queries are projected directly. */
  readonly queryLatentDim: number;
}

export interface LatentAttention {
  readonly sizes: LatentSizes;
  readonly rotary: Rotary;
  readonly scale: number;
}

/** Epsilon of the norms of latents, which may differ from that of the other norms. */
const latentEps = 1e-6;

const headOrderName = 'latent.headOrder';

/** Decreasing logits, so that selecting the top N of N heads yields their indices in order. */
export function latentConstants({ numHeads }: DecoderConfig): readonly (readonly [string, Float32Array])[] {
  return [[headOrderName, Float32Array.from({ length: numHeads }, (_, head) => numHeads - head)]];
}

const headIds = new WeakMap<DecoderStep, ProgramTensor>();

/** The index of each query head for each token, `[T, N]`: the per-head matrices are multiplied by the op for experts. */
function headIdsOf(step: DecoderStep): ProgramTensor {
  const { b, config } = step;
  const known = headIds.get(step);
  if (known !== undefined) return known;
  const logits = rowPerToken(step, step.constant(headOrderName));
  const { ids } = b.append('expert-route', { logits }, { k: config.numHeads });
  headIds.set(step, ids as ProgramTensor);
  return ids as ProgramTensor;
}

/** Latent attention over normalized inputs, with the output projection. */
export function latentAttention(
  step: DecoderStep,
  layer: number,
  x: ProgramTensor,
  { sizes, rotary, scale }: LatentAttention,
): ProgramTensor {
  const { b, config, positions, weight } = step;
  const { numHeads, headDim } = config;
  const { latentDim, rotaryDim, plainDim, valueDim, queryLatentDim } = sizes;
  const own = `blk.${layer}`;
  const columns = (rows: ProgramTensor, begin: number, length: number): ProgramTensor =>
    b.activation('slice-columns', { x: rows }, { begin, length });
  const padded = (rows: ProgramTensor, begin: number): ProgramTensor =>
    b.activation('slice-columns', { x: rows }, { begin, length: headDim, pads: true });
  const joined = (latent: ProgramTensor, rotated: ProgramTensor): ProgramTensor =>
    b.activation('add', { a: latent, b: padded(rotated, -latentDim) });
  const perHead = (rows: ProgramTensor, name: string): ProgramTensor =>
    b.activation('expert-matmul', { x: rows, ids: headIdsOf(step), weight: weight(`${own}.${name}.weight`) });

  const low =
    queryLatentDim === 0 ? x : normWithEps(step, `${own}.attn_q_a_norm`, linear(step, `${own}.attn_q_a`, x), latentEps);
  const queries = linear(step, `${own}.${queryLatentDim === 0 ? 'attn_q' : 'attn_q_b'}`, low);
  const heads = b.reshape(queries, ['T', numHeads, plainDim + rotaryDim]);
  const plain = padded(perHead(columns(heads, 0, plainDim), 'attn_k_b'), 0);
  const rotating = columns(heads, plainDim, rotaryDim);
  const rotateQuery = (at: ProgramTensor): ProgramTensor => joined(plain, rotary.rotate(step, rotating, at));

  const compressed = linear(step, `${own}.attn_kv_a_mqa`, x);
  const latent = normWithEps(step, `${own}.attn_kv_a_norm`, columns(compressed, 0, latentDim), latentEps);
  const v = b.reshape(padded(latent, 0), ['T', 1, headDim]);
  const shared = b.reshape(columns(compressed, latentDim, rotaryDim), ['T', 1, rotaryDim]);
  const k = joined(v, rotary.rotate(step, shared, positions));
  const attended = step.attend(layer, { q: rotateQuery(positions), k, v, scale, rotateQuery });
  const values = perHead(columns(attended, 0, latentDim), 'attn_v_b');
  return linear(step, `${own}.attn_output`, b.reshape(values, ['T', numHeads * valueDim]));
}

/** The tensors of a layer. Checkpoints and older GGUF files fuse the key and value matrices. */
export function* latentTensors(
  file: ModelFile,
  { hiddenDim, numHeads }: DecoderConfig,
  { latentDim, rotaryDim, plainDim, valueDim, queryLatentDim }: LatentSizes,
  layer: number,
  bias: Bias,
): Generator<WeightRequest> {
  const names = tensorNames(file);
  const [own, hub] = [`blk.${layer}`, `model.layers.${layer}.self_attn`];
  const queryDim = numHeads * (plainDim + rotaryDim);
  if (queryLatentDim === 0) yield* names.matrix([`${own}.attn_q`, `${hub}.q_proj`], [queryDim, hiddenDim], 'none');
  else {
    yield* names.matrix([`${own}.attn_q_a`, `${hub}.q_a_proj`], [queryLatentDim, hiddenDim], bias);
    yield* names.norm([`${own}.attn_q_a_norm`, `${hub}.q_a_layernorm`], queryLatentDim, 'none');
    yield* names.matrix([`${own}.attn_q_b`, `${hub}.q_b_proj`], [queryDim, queryLatentDim], 'none');
  }
  const compressed = [`${own}.attn_kv_a_mqa`, `${hub}.kv_a_proj_with_mqa`] as const;
  yield* names.matrix(compressed, [latentDim + rotaryDim, hiddenDim], bias);
  yield* names.norm([`${own}.attn_kv_a_norm`, `${hub}.kv_a_layernorm`], latentDim, 'none');
  const keys = { name: `${own}.attn_k_b.weight`, shape: [numHeads, latentDim, plainDim] };
  const values = { name: `${own}.attn_v_b.weight`, shape: [numHeads, valueDim, latentDim] };
  if (!names.isHub && file.store.tensors.has(keys.name)) {
    yield { ...keys, storedName: keys.name };
    yield { ...values, storedName: values.name };
  } else {
    const storedName = names.isHub ? `${hub}.kv_b_proj.weight` : `${own}.attn_kv_b.weight`;
    const rows = { total: plainDim + valueDim, step: 1, isFlat: true } as const;
    yield { ...keys, storedName, rows: { ...rows, begin: 0 }, storedAs: 'transposed-rows' };
    yield { ...values, storedName, rows: { ...rows, begin: plainDim } };
  }
  yield* names.matrix([`${own}.attn_output`, `${hub}.o_proj`], [hiddenDim, numHeads * valueDim], bias);
}
