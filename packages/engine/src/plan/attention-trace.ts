/** Queries, keys and values of attention layers as program outputs, for measurements. */
import { lowerDenseAttention, type AttentionLowering, type ProgramTensor } from '@winnow/ops';
import { ArgumentError } from '@winnow/tensor';
import type { ReadOutput } from '../memory/step-outputs.js';
import type { TracedStep } from '../memory/step-reports.js';

/** The attention inputs of one layer in one step, as flat rows of tokens. */
export interface AttentionTrace {
  readonly layer: number;
  /** Index of the first token of the step. */
  readonly begin: number;
  readonly numTokens: number;
  /** `[numTokens, numHeads, headDim]`, after RoPE, not scaled. */
  readonly q: Float32Array;
  /** The same before the rotation; other factors of the rotary embedding are applied. */
  readonly unrotatedQ: Float32Array;
  /** `[numTokens, numKvHeads, headDim]`, after RoPE. */
  readonly k: Float32Array;
  /** `[numTokens, numKvHeads, headDim]` */
  readonly v: Float32Array;
  /** Factor of `q . k`. */
  readonly scale: number;
  /** Number of keys that a query may attend to, including itself; 0 for all. */
  readonly window: number;
  /** Bound of the attention logits; 0 for none. */
  readonly softCap: number;
}

/** Static properties of a traced layer. */
export interface TracedLayer extends Pick<AttentionTrace, 'layer' | 'scale' | 'window' | 'softCap'> {
  /** Elements of one token. */
  readonly widths: Readonly<Record<Part, number>>;
}

const parts = ['q', 'unrotatedQ', 'k', 'v'] as const;
type Part = (typeof parts)[number];

const outputName = (layer: number, part: Part): string => `attention.${layer}.${part}`;

/** Makes the attention inputs of each layer of a program outputs. */
export class TraceLowering {
  readonly #onLayer: (layer: TracedLayer) => void;
  readonly #attend: AttentionLowering;
  /** The host never fills it: at position 0 the rotation is the identity. */
  #origin: ProgramTensor | undefined;

  /** @param onLayer called for each layer @param attend the lowering that attends */
  constructor(onLayer: (layer: TracedLayer) => void, attend: AttentionLowering = lowerDenseAttention) {
    this.#onLayer = onLayer;
    this.#attend = attend;
  }

  readonly lower: AttentionLowering = (b, node) => {
    this.#origin ??= b.scalar('traceOrigin', ['T']);
    const { layer, q, k, v, scale, window, softCap } = node;
    const tensors: Record<Part, ProgramTensor> = { q, unrotatedQ: node.rotateQuery(this.#origin), k, v };
    for (const part of parts) b.output(outputName(layer, part), tensors[part]);
    const width = (part: Part): number => tensors[part].shape.slice(1).reduce<number>((n, dim) => n * Number(dim), 1);
    const widths = { q: width('q'), unrotatedQ: width('unrotatedQ'), k: width('k'), v: width('v') };
    this.#onLayer({ layer, scale, window, softCap, widths });
    return this.#attend(b, node);
  };
}

/** Reads the attention inputs of the last step, layer by layer. */
export async function readTraces(
  layers: readonly TracedLayer[] | undefined,
  read: ReadOutput,
  { begin, numTokens, reports }: TracedStep,
  onAttention: (trace: AttentionTrace) => void | Promise<void>,
): Promise<void> {
  if (layers === undefined) {
    const [expected, actual] = ['a model loaded with trace.attention', 'one without'];
    throw new ArgumentError({ argument: 'onAttention', expected, actual });
  }
  for (const { layer, scale, window, softCap, widths } of layers) {
    const rows = async (part: Part): Promise<Float32Array> => {
      const values = new Float32Array(numTokens * widths[part]);
      await read(outputName(layer, part), values);
      return values;
    };
    const [q, unrotatedQ] = [await rows('q'), await rows('unrotatedQ')];
    const [k, v] = [await rows('k'), await rows('v')];
    if (!reports.take()) continue;
    await onAttention({ layer, begin, numTokens, q, unrotatedQ, k, v, scale, window, softCap });
  }
}
