/** How a model attends: a specification, checked for the model and the cache, and the lowering of its programs. */
import { createTraceLowering, type TracedLayer } from './attention-trace.js';
import { createMassLowering } from './eviction.js';
import type { DecoderProgramOptions } from '@winnow/models';
import {
  attentionRequirements,
  checkAttention,
  createAttentionLowering,
  formatAttention,
  resolvePolicy,
  type AttentionRequirements,
  type AttentionSpec,
  type LayerPolicy,
} from '@winnow/sparse-attention';
import { ArgumentError } from '@winnow/tensor';

/** Tokens of a prompt, or a token that was generated: they may attend in different ways. */
export type StepPhase = 'prefill' | 'decode';

export interface AttentionPlan {
  /** The text form; undefined when everything is dense. */
  readonly text: string | undefined;
  /** Whether prompts and generated tokens attend in the same way. */
  readonly isUniform: boolean;
  readonly requirements: AttentionRequirements;
  /** Tokens per block of the cache: the usual number, or the next one that the policies can divide. */
  readonly blockSize: number;
  /** By layer. */
  readonly layers: readonly LayerPolicy[];
  /** The part of the options of a program for a phase. */
  programOptions(phase: StepPhase): Pick<DecoderProgramOptions, 'attention'>;
}

export interface AttentionPlanOptions {
  readonly spec: AttentionSpec | string | undefined;
  readonly numLayers: number;
  /** Tokens per block of the cache where policies do not need another number. */
  readonly usualBlockSize: number;
  /** The last layer that attends, when programs shall measure how much each slot is looked at. */
  readonly massUpTo?: number | undefined;
  /** Hears of each layer whose queries, keys and values become outputs; without it they do not. */
  readonly onTracedLayer: ((layer: TracedLayer) => void) | undefined;
  readonly notice: (text: string) => void;
}

/** @throws {ArgumentError} for a specification that makes no sense, or not for this model and cache */
export function planAttention(options: AttentionPlanOptions): AttentionPlan {
  const { numLayers, usualBlockSize, onTracedLayer, notice } = options;
  const spec = checkAttention(options.spec ?? 'dense');
  const layers = resolvePolicy(spec, { numLayers });
  const requirements = attentionRequirements(spec, { numLayers });
  const blockSize = blockSizeFor(requirements, usualBlockSize);
  const isDense = layers.every(({ prefill, decode }) => prefill.kind === 'dense' && decode.kind === 'dense');
  const told = new Set<string>();
  const tellOnce = (text: string): void => {
    if (!told.has(text)) notice(text);
    told.add(text);
  };
  return {
    text: isDense ? undefined : formatAttention(spec),
    isUniform: layers.every(({ prefill, decode }) => JSON.stringify(prefill) === JSON.stringify(decode)),
    requirements,
    blockSize,
    layers,
    programOptions(phase) {
      const lowering = isDense ? undefined : createAttentionLowering(spec, phase, { numLayers, notice: tellOnce });
      if (options.massUpTo !== undefined) return { attention: createMassLowering(options.massUpTo) };
      if (onTracedLayer !== undefined) return { attention: createTraceLowering(onTracedLayer, lowering) };
      return lowering === undefined ? {} : { attention: lowering };
    },
  };
}

/** Larger blocks would leave much of the cache unused. */
const largestBlockSize = 1024;

/** @throws {ArgumentError} when only blocks that are too large would do */
function blockSizeFor(requirements: AttentionRequirements, usual: number): number {
  const unit = requirements.blockSizes.reduce((a, b) => (a / greatestCommonDivisor(a, b)) * b, 1);
  const blockSize = usual % unit === 0 ? usual : unit * Math.ceil(usual / unit);
  if (blockSize <= largestBlockSize) return blockSize;
  const sizes = requirements.blockSizes.join(' and ');
  const expected = `blocks and pages that divide a block of the cache of at most ${largestBlockSize} tokens`;
  throw new ArgumentError({ argument: 'attention', expected, actual: `${sizes} tokens` });
}

function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}
