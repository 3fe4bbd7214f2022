/** How a model attends: a specification, checked for the model and the cache, and the writers of its programs. */
import { createTraceWriter, type TracedLayer } from './attention-trace.js';
import { createMassWriter } from './key-masses.js';
import type { DecoderProgramOptions } from '@winnow/models';
import {
  attentionRequirements,
  checkAttention,
  checkBlockSize,
  createAttentionWriter,
  formatAttention,
  resolvePolicy,
  type AttentionRequirements,
  type AttentionSpec,
  type LayerPolicy,
} from '@winnow/sparse-attention';
import type { StepPhase } from './scheduler.js';

export interface AttentionPlan {
  /** The text form; undefined when everything is dense. */
  readonly text: string | undefined;
  /** Whether prompts and generated tokens attend in the same way. */
  readonly isUniform: boolean;
  readonly requirements: AttentionRequirements;
  /** By layer. */
  readonly layers: readonly LayerPolicy[];
  /** The part of the options of a program for a phase. */
  programOptions(phase: StepPhase): Pick<DecoderProgramOptions, 'attention'>;
}

export interface AttentionPlanOptions {
  readonly spec: AttentionSpec | string | undefined;
  readonly numLayers: number;
  readonly blockSize: number;
  /** The last layer that attends, when programs shall measure how much each slot is looked at. */
  readonly massUpTo?: number | undefined;
  /** Hears of each layer whose queries, keys and values become outputs; without it they do not. */
  readonly onTracedLayer: ((layer: TracedLayer) => void) | undefined;
  readonly notice: (text: string) => void;
}

/** @throws {ArgumentError} for a specification that makes no sense, or not for this model and cache */
export function planAttention(options: AttentionPlanOptions): AttentionPlan {
  const { numLayers, blockSize, onTracedLayer, notice } = options;
  const spec = checkAttention(options.spec ?? 'dense');
  const layers = resolvePolicy(spec, { numLayers });
  const requirements = attentionRequirements(spec, { numLayers });
  checkBlockSize(requirements, blockSize);
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
    layers,
    programOptions(phase) {
      const writer = isDense ? undefined : createAttentionWriter(spec, phase, { numLayers, notice: tellOnce });
      if (options.massUpTo !== undefined) return { attention: createMassWriter(options.massUpTo) };
      if (onTracedLayer !== undefined) return { attention: createTraceWriter(onTracedLayer, writer) };
      return writer === undefined ? {} : { attention: writer };
    },
  };
}
