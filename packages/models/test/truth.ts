/**
 * A decoder in plain float64, for settings that no golden model has: every formula is written out here once more, over
 * weights under their names in Hugging Face folders.
 */

/** What a decoder computes. Names of weights are those of a layer, without `.weight`; a norm without a bias has none. */
export interface TruthModel {
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly numLayers: number;
  readonly eps: number;
  readonly norm: 'rms' | 'layer';
  /** Norms multiply by one more than their weights. */
  readonly plusOne?: boolean;
  readonly activation: (x: number) => number;
  readonly embedding: string;
  /** Of learned positions. */
  readonly positions?: string;
  readonly embeddingScale?: number;
  readonly outputNorm: string;
  readonly output: string;
  readonly layer: (layer: number) => {
    readonly attentionNorm: string;
    /** Absent: attention and FFN read the same input. */
    readonly ffnNorm?: string;
    /** Norms of what is added. */
    readonly afterAttention?: string;
    readonly afterFfn?: string;
    readonly q: string;
    readonly k: string;
    readonly v: string;
    readonly o: string;
    readonly gate?: string;
    readonly up: string;
    readonly down: string;
    /** Speeds of the pairs `(i, i + n)` and the factor of both; absent: no rotation. */
    readonly rope?: { readonly speeds: readonly number[]; readonly amplitude: number };
    readonly window?: number;
    readonly scale: number;
    readonly cap?: number;
    /** Of one head of q or of k. */
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

/** Logits after each token. */
export function truthLogits(model: TruthModel, weights: TruthWeights, tokens: readonly number[]): number[][] {
  const { numHeads, numKvHeads, headDim, eps } = model;
  const values = (name: string): Float32Array => {
    const weight = weights(name);
    if (weight === undefined) throw new Error(`no weight ${name}`);
    return weight.values;
  };
  const linear = (name: string, x: readonly number[]): number[] => {
    const matrix = values(`${name}.weight`);
    const bias = weights(`${name}.bias`)?.values;
    return Array.from({ length: matrix.length / x.length }, (_, row) => {
      let sum = bias?.[row] ?? 0;
      for (let i = 0; i < x.length; i++) sum += (matrix[row * x.length + i] as number) * (x[i] as number);
      return sum;
    });
  };
  const norm = (name: string, x: readonly number[]): number[] => {
    const weight = values(`${name}.weight`);
    const bias = weights(`${name}.bias`)?.values;
    const factor = (i: number): number => (weight[i] as number) + (model.plusOne === true ? 1 : 0);
    return model.norm === 'rms' ? rmsOf(x, eps, factor) : layerNormOf(x, eps, factor, (i) => bias?.[i] ?? 0);
  };
  const add = (a: readonly number[], b: readonly number[]): number[] => a.map((value, i) => value + (b[i] as number));
  const rowOf = (name: string, row: number, size: number): number[] => [
    ...values(`${name}.weight`).subarray(row * size, (row + 1) * size),
  ];
  const hiddenDim = weights(`${model.embedding}.weight`)?.shape[1] as number;
  let states = tokens.map((token, position) => {
    const x = rowOf(model.embedding, token, hiddenDim).map((value) => value * (model.embeddingScale ?? 1));
    return model.positions === undefined ? x : add(x, rowOf(model.positions, position, hiddenDim));
  });
  for (let index = 0; index < model.numLayers; index++) {
    const layer = model.layer(index);
    const headsOf = (which: 'q' | 'k' | 'v', x: readonly number[], count: number, position: number): number[][] => {
      const all = linear(layer[which], x);
      return Array.from({ length: count }, (_, head) => {
        const own = all.slice(head * headDim, (head + 1) * headDim);
        if (which === 'v') return own;
        const normed = layer.normHead?.(own, which, head) ?? own;
        const { speeds: all_, amplitude } = layer.rope ?? { speeds: [], amplitude: 1 };
        const rotated = [...normed];
        all_.forEach((speed, i) => {
          const [a, b] = [normed[i] as number, normed[i + all_.length] as number];
          const [cos, sin] = [Math.cos(position * speed) * amplitude, Math.sin(position * speed) * amplitude];
          rotated[i] = a * cos - b * sin;
          rotated[i + all_.length] = a * sin + b * cos;
        });
        return rotated;
      });
    };
    const inputs = states.map((x) => norm(layer.attentionNorm, x));
    const q = inputs.map((x, position) => headsOf('q', x, numHeads, position));
    const k = inputs.map((x, position) => headsOf('k', x, numKvHeads, position));
    const v = inputs.map((x, position) => headsOf('v', x, numKvHeads, position));
    states = states.map((x, position) => {
      const mixed = Array.from({ length: numHeads }, (_, head) => {
        const kvHead = Math.floor(head / (numHeads / numKvHeads));
        const first = layer.window === undefined ? 0 : Math.max(0, position - layer.window + 1);
        const logits: number[] = [];
        for (let at = first; at <= position; at++) {
          const query = q[position]?.[head] as number[];
          const dot = query.reduce((sum, value, i) => sum + value * (k[at]?.[kvHead]?.[i] as number), 0);
          const scaled = dot * layer.scale;
          logits.push(layer.cap === undefined ? scaled : layer.cap * Math.tanh(scaled / layer.cap));
        }
        const max = Math.max(...logits);
        const exps = logits.map((logit) => Math.exp(logit - max));
        const total = exps.reduce((sum, value) => sum + value, 0);
        return Array.from({ length: headDim }, (_u, i) =>
          exps.reduce((sum, weight, at) => sum + (weight / total) * (v[first + at]?.[kvHead]?.[i] as number), 0),
        );
      }).flat();
      const attended = linear(layer.o, mixed);
      const ffn = (input: readonly number[]): number[] => {
        const up = linear(layer.up, input);
        const gate = layer.gate === undefined ? undefined : linear(layer.gate, input).map(model.activation);
        return linear(
          layer.down,
          gate === undefined ? up.map(model.activation) : up.map((y, i) => y * (gate[i] as number)),
        );
      };
      const after = (name: string | undefined, y: number[]): number[] => (name === undefined ? y : norm(name, y));
      const y = add(x, after(layer.afterAttention, attended));
      const ffnInput = layer.ffnNorm === undefined ? (inputs[position] as number[]) : norm(layer.ffnNorm, y);
      return add(y, after(layer.afterFfn, ffn(ffnInput)));
    });
  }
  const cap = model.finalCap;
  return states.map((x) => {
    const logits = linear(model.output, norm(model.outputNorm, x));
    return cap === undefined ? logits : logits.map((logit) => cap * Math.tanh(logit / cap));
  });
}

export const silu = (x: number): number => x / (1 + Math.exp(-x));
export const geluTanh = (x: number): number =>
  0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
