/** Applies LoRA adapters to the weights of a description: as separate low-rank factors, or merged into the weights. */
import type { StoredTensor } from '@winnow/bytes';
import { ArgumentError, dtypeInfo, FormatError, tensorBytes } from '@winnow/tensor';
import { changedRowsView } from '../file/changed-rows-view.js';
import { reencodedView } from '../file/reencoded-view.js';
import type { Weight } from '../file/weights.js';
import type { EmbedderDescription, ModelDescription } from '../program/architecture.js';
import { factorsInGguf, isUnusedKey } from '../program/tensors.js';
import { plainHubName } from './lora-names.js';
import type { Lora, LoraPart } from './lora.js';

/** An adapter and its user-defined scale. */
export interface ScaledLora {
  readonly lora: Lora;
  /** Multiplied by the adapter's own scale. */
  readonly scale: number;
}

/** Names of the low-rank factors of a matrix in programs. */
export function loraNames(name: string): { readonly a: string; readonly b: string } {
  return { a: `${name}.lora_a`, b: `${name}.lora_b` };
}

/**
 * Adds adapters to the weights.
 * @param mode `runtime`: two low-rank products beside each adapted matrix, for any weight type; `merge`: the weights are
 *   modified when they are read, and quantized weights are requantized
 * @param format format of the model
 * @returns notices
 * @throws {FormatError} when an adapter does not fit the model
 * @throws {ArgumentError} for a scale that is not a finite number
 */
export function addAdapters(
  description: EmbedderDescription,
  format: Lora['format'],
  adapters: readonly ScaledLora[],
  mode: 'runtime' | 'merge' = 'runtime',
): string[] {
  const { weights } = description;
  const parts = new Map<string, LoraPart[]>();
  const notices: string[] = [];
  for (const { lora, scale } of adapters) {
    if (!Number.isFinite(scale)) {
      throw new ArgumentError({ argument: 'adapter scale', expected: 'a finite number', actual: String(scale) });
    }
    const used = [...lora.parts].filter(([target]) => !isUnusedKey(target, description.config));
    const numUnused = lora.parts.size - used.length;
    if (numUnused > 0) {
      const of = `${numUnused} of ${lora.parts.size} matrices of the adapter '${lora.name}'`;
      notices.push(`${of} have no effect: their layers use the keys and values of an earlier layer`);
    }
    for (const [target, part] of used) {
      for (const [name, placed] of placedParts(description, format, lora, target, part)) {
        const scaled = { ...placed, b: placed.b.map((value) => value * scale) };
        parts.set(name, [...(parts.get(name) ?? []), scaled]);
      }
    }
  }
  const added: string[] = [];
  let numRequantized = 0;
  for (const [name, list] of parts) {
    const pair = joined(list);
    const weight = weights.get(`${name}.weight`) as Weight;
    if (mode === 'merge') {
      if (dtypeInfo(weight.dtype).isQuantized) numRequantized++;
      weights.set(weight.name, { ...weight, stored: reencodedView(mergedView(weight.stored, pair), weight.dtype) });
      continue;
    }
    const names = loraNames(name);
    weights.set(names.a, factor(names.a, [pair.rank, pair.numInputs], pair.a));
    weights.set(names.b, factor(names.b, [pair.numOutputs, pair.rank], pair.b));
    added.push(names.a);
  }
  checkUsed(description, added, adapters);
  if (numRequantized > 0) notices.push(`${numRequantized} quantized matrices were requantized to merge adapters`);
  return notices;
}

/** The weights that a target adapts: a fused matrix of a file is several weights in programs. */
function placedParts(
  { weights, config }: EmbedderDescription,
  format: Lora['format'],
  lora: Lora,
  target: string,
  part: LoraPart,
): [string, LoraPart][] {
  if (lora.format !== format && factorsInGguf.includes(config.architecture)) {
    throw misfit(lora, target, `expected an adapter of the format ${format}, whose factors are those of the model`);
  }
  const owners = ownersOf(weights, format, lora, target);
  const rows = owners.reduce((sum, { shape }) => sum + (shape[0] as number), 0);
  const [first] = owners;
  if (first === undefined) throw misfit(lora, target, 'the model has no such matrix');
  const expected = `${rows} outputs of ${first.shape[1]} inputs`;
  if (first.shape.length !== 2 || rows !== part.numOutputs || first.shape[1] !== part.numInputs) {
    throw misfit(lora, target, `expected ${expected}, got ${part.numOutputs} of ${part.numInputs}`);
  }
  if (lora.format !== format && owners.some(({ order }) => order?.dependsOnFormat === true)) {
    throw misfit(lora, target, `expected an adapter of the format ${format}, whose heads have the order of the model`);
  }
  let begin = 0;
  return owners.map(({ name, shape, order }) => {
    const numOutputs = shape[0] as number;
    const fusedRowOf = owners.length > 1 ? order?.fusedRowOf : undefined;
    const b =
      fusedRowOf === undefined
        ? part.b.slice(begin * part.rank, (begin + numOutputs) * part.rank)
        : gatheredRows(part, numOutputs, fusedRowOf);
    begin += numOutputs;
    const own = name.replace(/\.weight$/, '');
    // the formats order the rows of q and k differently
    const isPermuted = lora.format !== format && config.neighborsInGguf === true && /\.attn_[qk]$/.test(own);
    const permuted = isPermuted ? permutedRows(b, part.rank, config.headDim, format === 'gguf') : b;
    return [own, { ...part, numOutputs, b: permuted }];
  });
}

function ownersOf(
  weights: ReadonlyMap<string, Weight>,
  format: Lora['format'],
  lora: Lora,
  target: string,
): readonly Weight[] {
  const named = (stored: string): Weight[] => [...weights.values()].filter((weight) => weight.stored.name === stored);
  if (lora.format === 'safetensors' && format === 'safetensors') {
    const exact = named(`${target}.weight`);
    // adapters may lack the outer module name of the model, or have an additional one
    if (exact.length > 0) return exact;
    const shorter = [...new Set([...weights.values()].map(({ stored }) => stored.name))].filter(
      (name) => name.endsWith(`.${target}.weight`) || `${target}.weight`.endsWith(`.${name}`),
    );
    return shorter.length === 1 ? named(shorter[0] as string) : [];
  }
  const own = lora.format === 'gguf' ? target : plainHubName(target);
  if (own === undefined) return [];
  const weight = weights.get(`${own}.weight`);
  const stored = format === 'gguf' ? named(`${own}.weight`) : [];
  const fused = stored.length > 1 ? stored : fusedParts(weights, own);
  if (fused.length > 1) return fused;
  return weight === undefined ? stored : [weight];
}

/** The parts of matrices that some files fuse. */
const partsOf: Readonly<Record<string, readonly string[]>> = {
  attn_qkv: ['attn_q', 'attn_k', 'attn_v'],
  ssm_in: ['attn_qkv', 'attn_gate'],
  ssm_ba: ['ssm_beta', 'ssm_alpha'],
};

function fusedParts(weights: ReadonlyMap<string, Weight>, own: string): Weight[] {
  const [, layer, matrix] = /^(.*\.)(\w+)$/.exec(own) ?? [];
  const names = partsOf[matrix ?? ''] ?? [];
  return names.flatMap((name) => weights.get(`${layer}${name}.weight`) ?? []);
}

function gatheredRows({ b, rank }: LoraPart, numRows: number, rowOf: (row: number) => number): Float32Array {
  const gathered = new Float32Array(numRows * rank);
  for (let row = 0; row < numRows; row++) {
    const from = rowOf(row) * rank;
    gathered.set(b.subarray(from, from + rank), row * rank);
  }
  return gathered;
}

/** Permutes the rows of heads between split-half and interleaved rotary pairs. */
function permutedRows(b: Float32Array, rank: number, headDim: number, toNeighbors: boolean): Float32Array {
  const permuted = new Float32Array(b.length);
  const half = headDim / 2;
  for (let row = 0; row < b.length / rank; row++) {
    const at = row % headDim;
    const from = toNeighbors ? (at % 2) * half + (at >> 1) : at < half ? 2 * at : 2 * (at - half) + 1;
    const begin = (row - at + from) * rank;
    permuted.set(b.subarray(begin, begin + rank), row * rank);
  }
  return permuted;
}

function misfit({ name }: Lora, target: string, message: string): FormatError {
  return new FormatError({ source: name, field: target, message: `the adapter does not match the model: ${message}` });
}

/** Concatenates several adapters of a matrix into one, whose rank is the sum of theirs. */
function joined(parts: readonly LoraPart[]): LoraPart {
  const [first] = parts as [LoraPart];
  if (parts.length === 1) return first;
  const { numInputs, numOutputs } = first;
  const rank = parts.reduce((sum, part) => sum + part.rank, 0);
  const a = new Float32Array(rank * numInputs);
  const b = new Float32Array(numOutputs * rank);
  let begin = 0;
  for (const part of parts) {
    a.set(part.a, begin * numInputs);
    for (let row = 0; row < numOutputs; row++) {
      b.set(part.b.subarray(row * part.rank, (row + 1) * part.rank), row * rank + begin);
    }
    begin += part.rank;
  }
  return { rank, numInputs, numOutputs, a, b };
}

function factor(name: string, shape: readonly number[], values: Float32Array): Weight {
  const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  const read: StoredTensor['read'] = async (target, { byteOffset = 0 } = {}) =>
    target.set(bytes.subarray(byteOffset, byteOffset + target.length));
  const sizeBytes = tensorBytes('f32', shape);
  return {
    name,
    shape,
    dtype: 'f32',
    sizeBytes,
    isFloat: true,
    stored: { name, shape, dtype: 'f32', sizeBytes, read },
  };
}

/** `W + B A` as f32, computed in f64 for the rows that a read covers. */
function mergedView(stored: StoredTensor, { rank, numInputs, a, b }: LoraPart): StoredTensor {
  return changedRowsView(stored, (rows, begin) => {
    const sums = new Float64Array(numInputs);
    for (let at = 0, row = begin; at < rows.length; at += numInputs, row++) {
      sums.fill(0);
      for (let k = 0; k < rank; k++) {
        const weight = b[row * rank + k] as number;
        for (let i = 0; i < numInputs; i++) sums[i] = (sums[i] as number) + weight * (a[k * numInputs + i] as number);
      }
      for (let i = 0; i < numInputs; i++) rows[at + i] = (rows[at + i] as number) + (sums[i] as number);
    }
  });
}

/** Rejects adapters of matrices that no linear layer reads, such as routers: they would be ignored. */
function checkUsed(description: EmbedderDescription, names: readonly string[], adapters: readonly ScaledLora[]): void {
  if (names.length === 0) return;
  const program =
    'buildProgram' in description
      ? (description as ModelDescription).buildProgram({
          maxTokens: 1,
          maxSequences: 1,
          maxOutputRows: 1,
          cache: { numBlocks: 1, blockSize: 16, maxBlocksPerSequence: 1, dtype: { keys: 'f32', values: 'f32' } },
          topK: 1,
        })
      : description.buildEmbeddingProgram({ maxTokens: 1, maxSequences: 1, pooling: 'mean' });
  const used = new Set(program.buffers.map(({ name }) => name));
  const unused = names.find((name) => !used.has(name));
  if (unused === undefined) return;
  const target = unused.replace(/\.lora_a$/, '');
  throw misfit((adapters[0] as ScaledLora).lora, target, 'adapters of this matrix are not supported');
}
