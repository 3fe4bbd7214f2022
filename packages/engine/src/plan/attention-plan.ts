/** The attention plan of a model: the policies, checked against the model and the cache, and their lowering. */
import { TraceLowering, type TracedLayer } from './attention-trace.js';
import { MassLowering } from './eviction.js';
import { verifiesDrafts } from './speculative.js';
import type { VisitedLayers } from './visited-layers.js';
import type { DecoderConfig, DecoderProgramOptions } from '@winnow/models';
import type { AttentionLowering } from '@winnow/ops';
import {
  attentionRequirements,
  checkAttention,
  createAttentionLowering,
  formatAttention,
  resolvePolicy,
  type AttentionRequirements,
  type AttentionSpec,
  type LayerPolicy,
  type ResolvePolicyOptions,
} from '@winnow/sparse-attention';
import { ArgumentError, leastCommonMultiple } from '@winnow/tensor';

/** Phases, which may have different attention policies. */
export type StepPhase = 'prefill' | 'decode';

export interface AttentionPlan {
  /** The text form of the policies; undefined when all layers are dense. */
  readonly text: string | undefined;
  /** Whether prefill and decode have the same policy. */
  readonly isUniform: boolean;
  /** Whether steps may verify drafts: other policies select by data that later tokens of the step change. */
  readonly verifiesDrafts: boolean;
  readonly requirements: AttentionRequirements;
  /** Tokens per block of the cache: the usual number, or the next one that suits the policies. */
  readonly blockSize: number;
  /** By layer. */
  readonly layers: readonly LayerPolicy[];
  /** The part of the options of a program for a phase, or for steps of the rows of one image. */
  programOptions(phase: StepPhase | 'image'): Pick<DecoderProgramOptions, 'attention'>;
}

export interface AttentionPlanOptions {
  /** The policies, as `chooseAttention` found them. */
  readonly attention: AttentionSpec | string;
  readonly config: LayersConfig;
  /** Tokens per block of the cache unless policies need another number. */
  readonly usualBlockSize: number;
  /** The last attention layer, if programs accumulate the attention mass of each slot. */
  readonly massUpTo?: number | undefined;
  /** Called for each layer whose queries, keys and values become outputs; undefined: none do. */
  readonly onTracedLayer: ((layer: TracedLayer) => void) | undefined;
  /** With `trace.visitedKeys`. */
  readonly visited: VisitedLayers | undefined;
  readonly notice: (text: string) => void;
}

type LayersConfig = Pick<DecoderConfig, 'numLayers' | 'isChunked' | 'windowedLayers'>;

function chunkedLayersOf({ isChunked, windowedLayers }: LayersConfig): readonly boolean[] | undefined {
  return isChunked === true ? windowedLayers : undefined;
}

/** The layers that policies are resolved for; those whose windows are chunks are dense. */
export function layersOf(config: LayersConfig): ResolvePolicyOptions {
  return { numLayers: config.numLayers, denseLayers: chunkedLayersOf(config) };
}

/** @throws {ArgumentError} for a policy that is invalid or that this model or cache does not support */
export function planAttention(options: AttentionPlanOptions): AttentionPlan {
  const { config, usualBlockSize, onTracedLayer, visited, notice } = options;
  const spec = checkAttention(options.attention);
  const layers = resolvePolicy(spec, layersOf(config));
  const requirements = attentionRequirements(layers);
  const blockSize = blockSizeFor(requirements, usualBlockSize);
  const isDense = layers.every(({ prefill, decode }) => prefill.kind === 'dense' && decode.kind === 'dense');
  if (!isDense && chunkedLayersOf(config)?.includes(true) === true) {
    notice(`layers with chunked attention are dense under ${formatAttention(spec)}`);
  }
  const reported = new Set<string>();
  const noticeOnce = (text: string): void => {
    if (!reported.has(text)) notice(text);
    reported.add(text);
  };
  return {
    text: isDense ? undefined : formatAttention(spec),
    isUniform: layers.every(({ prefill, decode }) => JSON.stringify(prefill) === JSON.stringify(decode)),
    verifiesDrafts: layers.every(verifiesDrafts),
    requirements,
    blockSize,
    layers,
    programOptions(phase) {
      const observe = visited?.observe;
      const lowerBy = (of: StepPhase): AttentionLowering | undefined =>
        isDense ? undefined : createAttentionLowering(layers, of, { notice: noticeOnce, observe });
      if (phase === 'image') {
        const lowering = withinImage(lowerBy('prefill'));
        return { attention: onTracedLayer === undefined ? lowering : new TraceLowering(onTracedLayer, lowering).lower };
      }
      let lowering = lowerBy(phase);
      if (options.massUpTo !== undefined) lowering = new MassLowering(options.massUpTo).lower;
      else if (onTracedLayer !== undefined) lowering = new TraceLowering(onTracedLayer, lowering).lower;
      if (visited !== undefined) lowering = visited.wrap(lowering);
      return lowering === undefined ? {} : { attention: lowering };
    },
  };
}

/** Attributes are 32-bit integers. */
const maxReach = 2 ** 31 - 1;

/**
 * Attention of the rows of one image, which are the only tokens of a step and no more than the window: they see each other and
 * what the window shows of the tokens before them.
 * @param policy stores what later steps need of the keys
 */
function withinImage(policy: AttentionLowering | undefined): AttentionLowering {
  return (b, node) => {
    policy?.(b, node);
    const { q, positions, sequences, kv, scale, window, chunked = false, softCap, sinkLogits } = node;
    // a bidirectional window of this size reaches `window - 1` positions back
    const reach = window === 0 ? 0 : Math.min(maxReach, Math.max(1, 2 * (window - 1)));
    const attributes = { scale, window: reach, chunked, softCap, causal: false };
    return b.activation('attention', { q, positions, sequences, ...kv, sinkLogits }, attributes);
  };
}

/** Larger blocks would leave much of the cache unused. */
const largestBlockSize = 1024;

/** @throws {ArgumentError} when the policies need too large a block */
function blockSizeFor(requirements: AttentionRequirements, usual: number): number {
  const unit = requirements.blockSizes.reduce(leastCommonMultiple, 1);
  const blockSize = usual % unit === 0 ? usual : unit * Math.ceil(usual / unit);
  if (blockSize <= largestBlockSize) return blockSize;
  const sizes = requirements.blockSizes.join(' and ');
  const expected = `blocks and pages that divide a block of the cache of at most ${largestBlockSize} tokens`;
  throw new ArgumentError({ argument: 'attention', expected, actual: `${sizes} tokens` });
}
