/**
 * A decoder in plain float64, for settings that no golden model has: a second formulation of every formula, over weights
 * with Hugging Face names.
 */

/** Description of a decoder. Weight names are those within a layer, without `.weight`; a norm without a bias has no bias name. */
export interface TruthModel {
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly numLayers: number;
  readonly eps: number;
  readonly norm: 'rms' | 'layer';
  /** Norms multiply by 1 + weight. */
  readonly plusOne?: boolean;
  readonly activation: (x: number) => number;
  readonly embedding: string;
  /** Name of the learned positions. */
  readonly positions?: string;
  readonly embeddingScale?: number;
  readonly outputNorm: string;
  readonly output: string;
  readonly layer: (layer: number) => {
    readonly attentionNorm: string;
    /** Absent: attention and FFN read the same input. */
    readonly ffnNorm?: string;
    /** Norms before the residual additions. */
    readonly afterAttention?: string;
    readonly afterFfn?: string;
    readonly q: string;
    readonly k: string;
    readonly v: string;
    readonly o: string;
    readonly gate?: string;
    readonly up: string;
    readonly down: string;
    /** RoPE frequencies of the pairs `(i, i + n)` and the scale of both; absent: no RoPE. */
    readonly rope?: { readonly speeds: readonly number[]; readonly amplitude: number };
    readonly window?: number;
    readonly scale: number;
    readonly cap?: number;
    /** Norms of single heads of q and k. */
    readonly normHead?: (x: number[], which: 'q' | 'k', head: number) => number[];
  };
  readonly finalCap?: number;
}

export interface TruthWeight {
  /** `[rows, columns]`, or `[size]`. */
  readonly shape: readonly number[];
  readonly values: Float32Array;
}

export type TruthWeights = (name: string) => TruthWeight | undefined;

export function speeds(base: number, rotaryDim: number): number[] {
  return Array.from({ length: rotaryDim / 2 }, (_, i) => base ** ((-2 * i) / rotaryDim));
}

export function rmsOf(x: readonly number[], eps: number, weight: (i: number) => number): number[] {
  const mean = x.reduce((sum, value) => sum + value * value, 0) / x.length;
  return x.map((value, i) => (value / Math.sqrt(mean + eps)) * weight(i));
}

export function layerNormOf(
  x: readonly number[],
  eps: number,
  weight: (i: number) => number,
  bias: (i: number) => number = () => 0,
): number[] {
  const mean = x.reduce((sum, value) => sum + value, 0) / x.length;
  const variance = x.reduce((sum, value) => sum + (value - mean) ** 2, 0) / x.length;
  return x.map((value, i) => ((value - mean) / Math.sqrt(variance + eps)) * weight(i) + bias(i));
}

export function add(a: readonly number[], b: readonly number[]): number[] {
  return a.map((value, i) => value + (b[i] as number));
}

/** Matrices, rows and biases by name. */
export class TruthTensors {
  readonly #weights: TruthWeights;

  constructor(weights: TruthWeights) {
    this.#weights = weights;
  }

  shape(name: string): readonly number[] {
    return this.#weights(`${name}.weight`)?.shape ?? [];
  }

  values(name: string): Float32Array {
    const weight = this.#weights(`${name}.weight`);
    if (weight === undefined) throw new Error(`no weight ${name}`);
    return weight.values;
  }

  bias(name: string): Float32Array | undefined {
    return this.#weights(`${name}.bias`)?.values;
  }

  row(name: string, row: number): number[] {
    const size = this.shape(name)[1] as number;
    return [...this.values(name).subarray(row * size, (row + 1) * size)];
  }

  linear(name: string, x: readonly number[]): number[] {
    const matrix = this.values(name);
    const bias = this.bias(name);
    return Array.from({ length: matrix.length / x.length }, (_, row) => {
      let sum = bias?.[row] ?? 0;
      for (let i = 0; i < x.length; i++) sum += (matrix[row * x.length + i] as number) * (x[i] as number);
      return sum;
    });
  }
}

/** RoPE: rotates pairs `(i, i + n)` by angles proportional to the position. */
export function rotate(x: readonly number[], position: number, pairSpeeds: readonly number[], amplitude = 1): number[] {
  const rotated = [...x];
  pairSpeeds.forEach((speed, i) => {
    const [a, b] = [x[i] as number, x[i + pairSpeeds.length] as number];
    const [cos, sin] = [Math.cos(position * speed) * amplitude, Math.sin(position * speed) * amplitude];
    rotated[i] = a * cos - b * sin;
    rotated[i + pairSpeeds.length] = a * sin + b * cos;
  });
  return rotated;
}

/** Average of values, weighted by the softmax of logits. */
export function weighted(logits: readonly number[], values: readonly (readonly number[])[]): number[] {
  const max = Math.max(...logits);
  const exps = logits.map((logit) => Math.exp(logit - max));
  const total = exps.reduce((sum, value) => sum + value, 0);
  return (values[0] as readonly number[]).map((_, i) =>
    exps.reduce((sum, weight, at) => sum + (weight / total) * (values[at]?.[i] as number), 0),
  );
}

type TruthLayer = ReturnType<TruthModel['layer']>;
/** Vectors by position and head. */
type Heads = readonly (readonly number[][])[];

class TruthDecoder {
  readonly #model: TruthModel;
  readonly #tensors: TruthTensors;

  constructor(model: TruthModel, weights: TruthWeights) {
    this.#model = model;
    this.#tensors = new TruthTensors(weights);
  }

  logits(tokens: readonly number[]): number[][] {
    const { numLayers, outputNorm, output, finalCap: cap } = this.#model;
    let states = tokens.map((token, position) => this.#embed(token, position));
    for (let index = 0; index < numLayers; index++) states = this.#layer(this.#model.layer(index), states);
    return states.map((x) => {
      const logits = this.#tensors.linear(output, this.#norm(outputNorm, x));
      return cap === undefined ? logits : logits.map((logit) => cap * Math.tanh(logit / cap));
    });
  }

  #embed(token: number, position: number): number[] {
    const { embedding, embeddingScale = 1, positions } = this.#model;
    const x = this.#tensors.row(embedding, token).map((value) => value * embeddingScale);
    return positions === undefined ? x : add(x, this.#tensors.row(positions, position));
  }

  #norm(name: string, x: readonly number[]): number[] {
    const { eps, norm, plusOne } = this.#model;
    const weight = this.#tensors.values(name);
    const bias = this.#tensors.bias(name);
    const factor = (i: number): number => (weight[i] as number) + (plusOne === true ? 1 : 0);
    return norm === 'rms' ? rmsOf(x, eps, factor) : layerNormOf(x, eps, factor, (i) => bias?.[i] ?? 0);
  }

  #layer(layer: TruthLayer, states: readonly number[][]): number[][] {
    const { numHeads, numKvHeads } = this.#model;
    const inputs = states.map((x) => this.#norm(layer.attentionNorm, x));
    const q = inputs.map((x, position) => this.#heads(layer, 'q', x, numHeads, position));
    const k = inputs.map((x, position) => this.#heads(layer, 'k', x, numKvHeads, position));
    const v = inputs.map((x, position) => this.#heads(layer, 'v', x, numKvHeads, position));
    const after = (name: string | undefined, y: number[]): number[] => (name === undefined ? y : this.#norm(name, y));
    return states.map((x, position) => {
      const attended = this.#tensors.linear(layer.o, this.#attend(layer, { q, k, v }, position));
      const y = add(x, after(layer.afterAttention, attended));
      const ffnInput = layer.ffnNorm === undefined ? (inputs[position] as number[]) : this.#norm(layer.ffnNorm, y);
      return add(y, after(layer.afterFfn, this.#ffn(layer, ffnInput)));
    });
  }

  #heads(layer: TruthLayer, which: 'q' | 'k' | 'v', x: readonly number[], count: number, position: number): number[][] {
    const { headDim } = this.#model;
    const all = this.#tensors.linear(layer[which], x);
    return Array.from({ length: count }, (_, head) => {
      const own = all.slice(head * headDim, (head + 1) * headDim);
      if (which === 'v') return own;
      const { speeds: pairSpeeds, amplitude } = layer.rope ?? { speeds: [], amplitude: 1 };
      return rotate(layer.normHead?.(own, which, head) ?? own, position, pairSpeeds, amplitude);
    });
  }

  #attend(layer: TruthLayer, { q, k, v }: { q: Heads; k: Heads; v: Heads }, position: number): number[] {
    const { numHeads, numKvHeads } = this.#model;
    const first = layer.window === undefined ? 0 : Math.max(0, position - layer.window + 1);
    return Array.from({ length: numHeads }, (_, head) => {
      const kvHead = Math.floor(head / (numHeads / numKvHeads));
      const query = q[position]?.[head] as number[];
      const logits = k.slice(first, position + 1).map((keys) => {
        const dot = query.reduce((sum, value, i) => sum + value * (keys[kvHead]?.[i] as number), 0);
        const scaled = dot * layer.scale;
        return layer.cap === undefined ? scaled : layer.cap * Math.tanh(scaled / layer.cap);
      });
      return weighted(
        logits,
        v.slice(first, position + 1).map((values) => values[kvHead] as number[]),
      );
    }).flat();
  }

  #ffn({ up: upName, gate: gateName, down }: TruthLayer, input: readonly number[]): number[] {
    const { activation } = this.#model;
    const up = this.#tensors.linear(upName, input);
    if (gateName === undefined) return this.#tensors.linear(down, up.map(activation));
    const gate = this.#tensors.linear(gateName, input).map(activation);
    return this.#tensors.linear(
      down,
      up.map((y, i) => y * (gate[i] as number)),
    );
  }
}

/** Logits after each token. */
export function truthLogits(model: TruthModel, weights: TruthWeights, tokens: readonly number[]): number[][] {
  return new TruthDecoder(model, weights).logits(tokens);
}

export const silu = (x: number): number => x / (1 + Math.exp(-x));
export const geluTanh = (x: number): number =>
  0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
