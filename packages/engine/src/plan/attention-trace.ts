/** Queries, keys and values of attending layers as outputs of a program, for measurements. */
import { lowerDenseAttention, type AttentionLowering, type ProgramTensor } from '@winnow/ops';
import { ArgumentError } from '@winnow/tensor';
import type { ReadOutput } from '../memory/step-outputs.js';
import type { TracedStep } from '../memory/step-reports.js';

/** What one layer attends with in one step: rows of tokens, flat. */
export interface AttentionTrace {
  readonly layer: number;
  /** Index of the first token of the step. */
  readonly begin: number;
  readonly numTokens: number;
  /** `[numTokens, numHeads, headDim]`, rotated, not scaled. */
  readonly q: Float32Array;
  /** The same before rotation; other factors of the rotary embedding are in it. */
  readonly unrotatedQ: Float32Array;
  /** `[numTokens, numKvHeads, headDim]`, rotated. */
  readonly k: Float32Array;
  /** `[numTokens, numKvHeads, headDim]` */
  readonly v: Float32Array;
  /** Factor of `q . k`. */
  readonly scale: number;
  /** Keys that a query may see, itself included; 0 for all. */
  readonly window: number;
  /** Bound of the attention logits; 0 for none. */
  readonly softCap: number;
}

/** What is known of a traced layer before it runs. */
export interface TracedLayer extends Pick<AttentionTrace, 'layer' | 'scale' | 'window' | 'softCap'> {
  /** Elements of one token. */
  readonly widths: Readonly<Record<Part, number>>;
}

const parts = ['q', 'unrotatedQ', 'k', 'v'] as const;
type Part = (typeof parts)[number];

const outputName = (layer: number, part: Part): string => `attention.${layer}.${part}`;

/**
 * A lowering that makes what each layer attends with an output, then lets `write` attend.
 * @param onLayer hears of each layer
 */
export function createTraceLowering(
  onLayer: (layer: TracedLayer) => void,
  write: AttentionLowering = lowerDenseAttention,
): AttentionLowering {
  let origin: ProgramTensor | undefined; // the host never fills it: all positions are 0, where nothing is rotated
  return (b, site) => {
    origin ??= b.scalar('traceOrigin', ['T']);
    const { layer, q, k, v, scale, window, softCap } = site;
    const tensors: Record<Part, ProgramTensor> = { q, unrotatedQ: site.rotateQuery(origin), k, v };
    for (const part of parts) b.output(outputName(layer, part), tensors[part]);
    const width = (part: Part): number => tensors[part].shape.slice(1).reduce<number>((n, dim) => n * Number(dim), 1);
    const widths = { q: width('q'), unrotatedQ: width('unrotatedQ'), k: width('k'), v: width('v') };
    onLayer({ layer, scale, window, softCap, widths });
    return write(b, site);
  };
}

/** Reads what the step that just ran attended with, layer by layer. */
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
