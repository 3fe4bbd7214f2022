/** Captures queries, keys and values of a text from a running model. */
import type { AttentionTrace, Model } from '@winnow/engine';
import { kvHeadsOf, rotaryLengthsOf } from '@winnow/models';
import { ropeFrequencies, RowRotation } from '@winnow/ops';
import type { Rotate } from '@winnow/sparse-attention';
import { Tensor3 } from '@winnow/tensor';

/** Queries, keys and values of one layer over a whole text: `[numTokens, heads, headDim]`, after RoPE. */
export interface AttentionCapture {
  /** For tables: `layer 3`, or the kind of a synthetic head. */
  readonly name: string;
  /** Layer of the model; undefined for synthetic heads. */
  readonly layer: number | undefined;
  readonly q: Tensor3;
  readonly unrotatedQ: Tensor3;
  readonly k: Tensor3;
  readonly v: Tensor3;
  readonly scale: number;
  /** Rotates an unrotated query to a position, for policies that remap positions. */
  readonly rotate: Rotate | undefined;
}

export interface CaptureOptions {
  /** Default: all layers with full attention. */
  readonly layers?: readonly number[] | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Captured layers, and layers that were skipped because their attention has a window or a soft cap. */
export interface CaptureResult {
  readonly captures: readonly AttentionCapture[];
  readonly skippedLayers: readonly number[];
}

/** Runs the tokens through a model that was loaded with `trace.attention`. @throws {ArgumentError} when it was not */
export async function captureAttention(
  model: Model,
  tokens: Int32Array,
  { layers, signal }: CaptureOptions = {},
): Promise<CaptureResult> {
  const { config } = model;
  const numTokens = tokens.length;
  const captures = new Map<number, AttentionCapture>();
  const skipped = new Set<number>();
  const rotate = rotateOf(model, numTokens);
  const create = ({ layer, scale }: AttentionTrace): AttentionCapture => {
    const { numKvHeads, headDim } = kvHeadsOf(config, layer);
    return {
      name: `layer ${layer}`,
      layer,
      q: Tensor3.create(numTokens, config.numHeads, headDim),
      unrotatedQ: Tensor3.create(numTokens, config.numHeads, headDim),
      k: Tensor3.create(numTokens, numKvHeads, headDim),
      v: Tensor3.create(numTokens, numKvHeads, headDim),
      scale,
      rotate,
    };
  };
  await model.logprobs(tokens, {
    positions: [],
    ...(signal === undefined ? {} : { signal }),
    onAttention(trace) {
      const { layer, begin } = trace;
      if (layers !== undefined && !layers.includes(layer)) return;
      // heads of another size have frequencies of their own
      const hasOwnHeads = config.globalHeads !== undefined && trace.window !== 0;
      if ((trace.window !== 0 && trace.window < numTokens) || trace.softCap !== 0 || hasOwnHeads) {
        skipped.add(layer);
        return;
      }
      let capture = captures.get(layer);
      if (capture === undefined) captures.set(layer, (capture = create(trace)));
      for (const part of ['q', 'unrotatedQ', 'k', 'v'] as const) {
        const target = capture[part];
        target.data.set(trace[part], begin * target.numHeads * target.headDim);
      }
    },
  });
  return {
    captures: [...captures.values()].toSorted((a, b) => Number(a.layer) - Number(b.layer)),
    skippedLayers: [...skipped].toSorted((a, b) => a - b),
  };
}

/** The model's RoPE for one row of a prompt of `numTokens`, or undefined where a policy must use the query unchanged. */
function rotateOf({ config, contextSize }: Model, numTokens: number): Rotate | undefined {
  const { rope } = config;
  const { headDim } = config.globalHeads ?? config;
  if (rope === undefined) return undefined;
  const lengths = rotaryLengthsOf(rope);
  const isDynamic = lengths !== undefined && contextSize > lengths.contextLength;
  const scaling = isDynamic ? lengths.scalingOf(lengths.keyOf(numTokens)) : rope.scaling;
  const { base, rotaryDim, layout } = rope;
  const { frequencies } = ropeFrequencies({ base, rotaryDim, ...(scaling === undefined ? {} : { scaling }) });
  const rotation = new RowRotation(frequencies, layout);
  return (source, offset, position, out, outOffset) => {
    rotation.moveTo(position);
    rotation.apply(source, offset, out, outOffset, headDim);
  };
}
