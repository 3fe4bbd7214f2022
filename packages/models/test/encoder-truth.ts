/** An encoder in plain float64, over weights under their names in Hugging Face folders; and the same one as a program. */
import { createReferenceBackend, createScalarBlock } from '@winnow/ops';
import {
  describeEmbedder,
  embeddingBlockSize,
  loadWeight,
  slotPositionsName,
  type ModelFile,
  type Pooling,
} from '../src/index.js';
import { layerNormOf, type TruthWeights } from './truth.js';

/** Names lack `.weight`; of what a model does not have there is no name. */
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
    /** Before the sums, or after them. */
    readonly order: 'pre' | 'post';
    /** Absent: the input as it is. */
    readonly attentionNorm?: string;
    readonly ffnNorm: string;
    /** Three matrices, or one with the rows of all. */
    readonly qkv: readonly string[];
    readonly output: string;
    /** Of the gate and what it opens: two matrices, or one with the rows of both; without gate one. */
    readonly up: readonly string[];
    readonly isGated: boolean;
    readonly down: string;
    readonly speeds?: readonly number[];
    /** Keys to each side. */
    readonly reach?: number;
  };
}

/** The vectors of all tokens after the last layer. */
export function truthStates(model: TruthEncoder, weights: TruthWeights, tokens: readonly number[]): number[][] {
  const { numHeads } = model;
  const values = (name: string): Float32Array => {
    const found = weights(name);
    if (found === undefined) throw new Error(`no weight ${name}`);
    return found.values;
  };
  const linear = (name: string, x: readonly number[]): number[] => {
    const matrix = values(`${name}.weight`);
    const bias = weights(`${name}.bias`)?.values;
    return Array.from({ length: matrix.length / x.length }, (_, row) =>
      x.reduce((sum, value, i) => sum + (matrix[row * x.length + i] as number) * value, bias?.[row] ?? 0),
    );
  };
  const norm = (name: string, x: readonly number[]): number[] => {
    const bias = weights(`${name}.bias`)?.values;
    return layerNormOf(
      x,
      model.eps,
      (i) => values(`${name}.weight`)[i] as number,
      (i) => bias?.[i] ?? 0,
    );
  };
  const add = (a: readonly number[], b: readonly number[]): number[] => a.map((value, i) => value + (b[i] as number));
  const hidden = weights(`${model.tokens}.weight`)?.shape[1] as number;
  const row = (name: string, index: number): number[] => [
    ...values(`${name}.weight`).subarray(index * hidden, (index + 1) * hidden),
  ];
  let states = tokens.map((token, position) => {
    let x = row(model.tokens, token);
    if (model.types !== undefined) x = add(x, row(model.types, 0));
    if (model.positions !== undefined) x = add(x, row(model.positions, position));
    return norm(model.embeddingNorm, x);
  });
  const headDim = hidden / numHeads;
  for (let index = 0; index < model.numLayers; index++) {
    const layer = model.layer(index);
    const isPre = layer.order === 'pre';
    const normed = (name: string | undefined, x: number[]): number[] => (name === undefined ? x : norm(name, x));
    const rotated = (head: readonly number[], position: number): number[] => {
      const out = [...head];
      const half = layer.speeds?.length ?? 0;
      layer.speeds?.forEach((speed, i) => {
        const [a, b] = [head[i] as number, head[i + half] as number];
        out[i] = a * Math.cos(position * speed) - b * Math.sin(position * speed);
        out[i + half] = a * Math.sin(position * speed) + b * Math.cos(position * speed);
      });
      return out;
    };
    const heads = states.map((x, position) => {
      const input = isPre ? normed(layer.attentionNorm, x) : x;
      const all = layer.qkv.flatMap((name) => linear(name, input));
      const part = (which: number): number[][] =>
        Array.from({ length: numHeads }, (_, head) => {
          const begin = which * hidden + head * headDim;
          const own = all.slice(begin, begin + headDim);
          return which === 2 ? own : rotated(own, position);
        });
      return { q: part(0), k: part(1), v: part(2) };
    });
    states = states.map((x, position) => {
      const mixed = Array.from({ length: numHeads }, (_, head) => {
        const seen = tokens.map((_t, at) => at).filter((at) => Math.abs(at - position) <= (layer.reach ?? Infinity));
        const exps = seen.map((at) => {
          const q = heads[position]?.q[head] as number[];
          const k = heads[at]?.k[head] as number[];
          return Math.exp(q.reduce((sum, value, i) => sum + value * (k[i] as number), 0) / Math.sqrt(headDim));
        });
        const total = exps.reduce((a, b) => a + b);
        return Array.from({ length: headDim }, (_u, i) =>
          seen.reduce((sum, at, j) => sum + ((exps[j] as number) / total) * (heads[at]?.v[head]?.[i] as number), 0),
        );
      }).flat();
      const attended = add(x, linear(layer.output, mixed));
      const y = isPre ? attended : normed(layer.attentionNorm, attended);
      const all = layer.up.flatMap((name) => linear(name, isPre ? norm(layer.ffnNorm, y) : y));
      const half = all.length / 2;
      const inner = layer.isGated
        ? all.slice(0, half).map((gate, i) => model.activation(gate) * (all[half + i] as number))
        : all.map(model.activation);
      const z = add(y, linear(layer.down, inner));
      return isPre ? z : norm(layer.ffnNorm, z);
    });
  }
  const { finalNorm } = model;
  return finalNorm === undefined ? states : states.map((x) => norm(finalNorm, x));
}

/** Vectors of texts, all in one step on the reference backend. */
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
    scalars.slot('blockTable')[index * maxBlocks] = index; // short texts: a block each
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
