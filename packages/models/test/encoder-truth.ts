/** An encoder in plain float64 over weights with Hugging Face names, and the same encoder as a program. */
import { createReferenceBackend, createScalarBlock } from '@winnow/ops';
import {
  describeEmbedder,
  embeddingBlockSize,
  loadWeight,
  slotPositionsName,
  type ModelFile,
  type Pooling,
} from '../src/index.js';
import { add, layerNormOf, rotate, TruthTensors, weighted, type TruthWeights } from './truth.js';

/** Names without `.weight`; undefined for parts that the model lacks. */
export interface TruthEncoder {
  readonly numHeads: number;
  readonly numLayers: number;
  readonly eps: number;
  readonly activation: (x: number) => number;
  readonly tokens: string;
  readonly positions?: string;
  readonly types?: string;
  readonly embeddingNorm: string;
  readonly finalNorm?: string;
  readonly layer: (layer: number) => {
    /** Norms before the residual sums, or after them. */
    readonly order: 'pre' | 'post';
    /** Absent: the input without a norm. */
    readonly attentionNorm?: string;
    readonly ffnNorm: string;
    /** Three matrices, or one with the rows of all. */
    readonly qkv: readonly string[];
    readonly output: string;
    /** Gate and up: two matrices, or one with the rows of both; without a gate, up. */
    readonly up: readonly string[];
    readonly isGated: boolean;
    readonly down: string;
    readonly speeds?: readonly number[];
    /** Number of keys to each side. */
    readonly reach?: number;
  };
}

/** The vectors of all tokens after the last layer. */
export function truthStates(model: TruthEncoder, weights: TruthWeights, tokens: readonly number[]): number[][] {
  return new TruthEncoding(model, weights).states(tokens);
}

type TruthLayer = ReturnType<TruthEncoder['layer']>;
/** The vectors of one token, by head. */
type Heads = Readonly<Record<'q' | 'k' | 'v', readonly number[][]>>;

class TruthEncoding {
  readonly #model: TruthEncoder;
  readonly #tensors: TruthTensors;

  constructor(model: TruthEncoder, weights: TruthWeights) {
    this.#model = model;
    this.#tensors = new TruthTensors(weights);
  }

  states(tokens: readonly number[]): number[][] {
    const { numLayers, finalNorm } = this.#model;
    let states = tokens.map((token, position) => this.#embed(token, position));
    for (let index = 0; index < numLayers; index++) states = this.#layer(this.#model.layer(index), states);
    return states.map((x) => this.#norm(finalNorm, x));
  }

  #embed(token: number, position: number): number[] {
    const { tokens, types, positions, embeddingNorm } = this.#model;
    let x = this.#tensors.row(tokens, token);
    if (types !== undefined) x = add(x, this.#tensors.row(types, 0));
    if (positions !== undefined) x = add(x, this.#tensors.row(positions, position));
    return this.#norm(embeddingNorm, x);
  }

  /** Applies a norm; without one, returns the input. */
  #norm(name: string | undefined, x: number[]): number[] {
    if (name === undefined) return x;
    const weight = this.#tensors.values(name);
    const bias = this.#tensors.bias(name);
    return layerNormOf(
      x,
      this.#model.eps,
      (i) => weight[i] as number,
      (i) => bias?.[i] ?? 0,
    );
  }

  #layer(layer: TruthLayer, states: readonly number[][]): number[][] {
    const isPre = layer.order === 'pre';
    const heads = states.map((x, position) =>
      this.#heads(layer, isPre ? this.#norm(layer.attentionNorm, x) : x, position),
    );
    return states.map((x, position) => {
      const attended = add(x, this.#tensors.linear(layer.output, this.#attend(layer, heads, position)));
      const y = isPre ? attended : this.#norm(layer.attentionNorm, attended);
      const z = add(y, this.#ffn(layer, isPre ? this.#norm(layer.ffnNorm, y) : y));
      return isPre ? z : this.#norm(layer.ffnNorm, z);
    });
  }

  #heads(layer: TruthLayer, input: readonly number[], position: number): Heads {
    const { numHeads } = this.#model;
    const all = layer.qkv.flatMap((name) => this.#tensors.linear(name, input));
    const headDim = all.length / 3 / numHeads;
    const part = (which: number): number[][] =>
      Array.from({ length: numHeads }, (_, head) => {
        const begin = (which * numHeads + head) * headDim;
        const own = all.slice(begin, begin + headDim);
        return which === 2 ? own : rotate(own, position, layer.speeds ?? []);
      });
    return { q: part(0), k: part(1), v: part(2) };
  }

  #attend({ reach = Infinity }: TruthLayer, heads: readonly Heads[], position: number): number[] {
    const seen = heads.filter((_, at) => Math.abs(at - position) <= reach);
    return Array.from({ length: this.#model.numHeads }, (_, head) => {
      const query = heads[position]?.q[head] as number[];
      const logits = seen.map(
        ({ k }) => query.reduce((sum, value, i) => sum + value * (k[head]?.[i] as number), 0) / Math.sqrt(query.length),
      );
      return weighted(
        logits,
        seen.map(({ v }) => v[head] as number[]),
      );
    }).flat();
  }

  #ffn(layer: TruthLayer, input: readonly number[]): number[] {
    const { activation } = this.#model;
    const all = layer.up.flatMap((name) => this.#tensors.linear(name, input));
    const half = all.length / 2;
    const inner = layer.isGated
      ? all.slice(0, half).map((gate, i) => activation(gate) * (all[half + i] as number))
      : all.map(activation);
    return this.#tensors.linear(layer.down, inner);
  }
}

/** Vectors of texts, computed in one step on the reference backend. */
export async function runEmbedder(
  file: ModelFile,
  pooling: Pooling,
  texts: readonly (readonly number[])[],
): Promise<Float32Array[]> {
  const description = await describeEmbedder(file);
  const numTokens = texts.reduce((sum, text) => sum + text.length, 0);
  const program = description.buildEmbeddingProgram({ maxTokens: numTokens, maxSequences: texts.length, pooling });
  const backend = createReferenceBackend();
  const buffers = new Map();
  for (const { name, usage, sizeBytes } of program.buffers) {
    if (usage !== 'weights' && usage !== 'kv') continue;
    const buffer = backend.allocate({ sizeBytes, usage, label: name });
    const bytes = new Uint8Array(sizeBytes);
    const weight = description.weights.get(name);
    const constant = description.constants.get(name);
    if (weight !== undefined) await loadWeight(weight, bytes);
    else if (constant !== undefined) bytes.set(new Uint8Array(constant.buffer));
    else if (name === slotPositionsName) bytes.fill(0xff);
    await backend.write(buffer, 0, bytes);
    buffers.set(name, buffer);
  }
  const executable = await backend.prepare(program, { buffers });
  const scalars = createScalarBlock(program.scalars, program.symbols);
  scalars.bind('T', numTokens);
  scalars.bind('B', texts.length);
  const maxBlocks = scalars.slot('blockTable').length / texts.length;
  let at = 0;
  texts.forEach((text, index) => {
    scalars.slot('starts')[index] = at;
    scalars.slot('contextLengths')[index] = text.length;
    scalars.slot('blockTable')[index * maxBlocks] = index; // short texts: one block each
    for (const [position, token] of text.entries()) {
      scalars.slot('tokens')[at] = token;
      scalars.slot('positions')[at] = position;
      scalars.slot('sequences')[at] = index;
      scalars.slot('slots')[at] = index * embeddingBlockSize + position;
      at++;
    }
  });
  await executable.run(scalars.words);
  const { hiddenDim } = description.config;
  const vectors = new Float32Array(texts.length * hiddenDim);
  await executable.read('embeddings', vectors);
  await backend.dispose();
  return texts.map((_, index) => vectors.subarray(index * hiddenDim, (index + 1) * hiddenDim));
}
