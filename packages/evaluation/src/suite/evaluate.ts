/** The complete evaluation of a model: configurations compared with the dense base, as one report of plain data. */
import type { Model } from '@winnow/engine';
import type { KvDTypes } from '@winnow/engine';
import type { Backend } from '@winnow/ops';
import { formatPolicy, type AttentionPolicy } from '@winnow/sparse-attention';
import { ArgumentError, CapacityError, checkOptions, type OptionNames, UnsupportedOpError } from '@winnow/tensor';
import { measureAttention, meanQuality, type LayerQuality, type QualityMeans } from '../attention/attention-quality.js';
import { captureAttention, type AttentionCapture, type CaptureResult } from '../attention/capture.js';
import { measureCertificates, type CertificateReport } from '../attention/certificates.js';
import { measureCoverage, type CoverageReport } from '../attention/coverage.js';
import { densityOf, type DensityOptions } from '../attention/density.js';
import { measureHeavySets, type HeavySetReport } from '../attention/heavy-sets.js';
import { syntheticCaptures } from '../attention/synthetic.js';
import { baseConfiguration, openOptionsOf, type Configuration, type OpenModel, type Phase } from '../configuration.js';
import type { DivergenceReport } from '../logits/divergence.js';
import { compareForced, createBaseRows, maxBaseBytes, type BaseRows } from '../logits/forced-decoding.js';
import { runTasks, type TaskScore } from '../tasks/run-tasks.js';
import type { TaskForm, TaskName } from '../tasks/task-types.js';
import { checkDeterminism, type DeterminismReport } from './determinism.js';
import { measureSpeed, type SpeedPoint } from './speed.js';

/** Parts of the evaluation. */
export const evaluationParts = ['logits', 'attention', 'tasks', 'speed', 'determinism'] as const;
export type EvaluationPart = (typeof evaluationParts)[number];

/** A part of one configuration: what a process can run by itself. */
export interface EvaluationShard {
  /** Index of the configuration. */
  readonly configuration: number;
  readonly part: EvaluationPart;
}

export interface EvaluateOptions {
  readonly open: OpenModel;
  readonly configurations: readonly Configuration[];
  readonly parts: readonly EvaluationPart[];
  /** Runs only this part of one configuration, with the figures that the whole would have. Default: everything. */
  readonly shard?: EvaluationShard | undefined;
  /** Tokens for forced decoding and captured attention. */
  readonly tokens: Int32Array;
  /** Number of tokens for captured attention; the cost is quadratic. */
  readonly attentionTokens: number;
  /** Layers to capture. Default: at most eight, evenly spread. */
  readonly layers?: readonly number[] | undefined;
  readonly tasks: readonly TaskName[];
  readonly taskForm: TaskForm;
  readonly taskLengths: readonly number[];
  readonly numCases: number;
  readonly speedLengths: readonly number[];
  readonly seed: number;
  readonly maxBaseBytes?: number | undefined;
  /** Where the attention of single layers is computed. Default: the reference backend, which is slow. */
  readonly backend?: Backend | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Called when a part begins. */
  readonly onProgress?: ((what: string, done: number, total: number) => void) | undefined;
}

const evaluateNames: OptionNames<EvaluateOptions> = {
  open: true,
  configurations: true,
  parts: true,
  shard: true,
  tokens: true,
  attentionTokens: true,
  layers: true,
  tasks: true,
  taskForm: true,
  taskLengths: true,
  numCases: true,
  speedLengths: true,
  seed: true,
  maxBaseBytes: true,
  backend: true,
  signal: true,
  onProgress: true,
};

export interface ConfigurationReport {
  readonly label: string;
  readonly kvDType: KvDTypes;
  /** Why the engine cannot run the configuration; its attention may have been measured anyway. */
  readonly refusal: string | undefined;
  readonly kvBytesPerToken: number | undefined;
  /**
   * Visited pairs divided by dense pairs over the whole text, mean over layers; missing where it depends on the values.
   */
  readonly density: Readonly<Partial<Record<Phase, number>>>;
  readonly logits: Readonly<Partial<Record<Phase, DivergenceReport>>>;
  readonly attention: readonly AttentionReport[];
  readonly tasks: readonly TaskScore[];
  readonly speed: readonly SpeedPoint[];
}

/** Attention under one of the policies of a configuration. */
export interface AttentionReport {
  readonly phases: readonly Phase[];
  readonly policy: string;
  readonly captured: QualityMeans;
  readonly layers: readonly LayerQuality[];
  readonly synthetic: readonly LayerQuality[];
  /** Only of `page-topk`. */
  readonly certificates: readonly CertificateReport[];
  /** Of `verified-topk`, and beside it of `page-topk` with an `epsilon` and of `oracle-topk`: captured layers, then synthetic ones. */
  readonly coverage: readonly CoverageReport[];
  /** Only of `h2o-prefill`. */
  readonly heavySets: readonly HeavySetReport[];
}

export interface EvaluationReport {
  readonly model: string;
  readonly backend: string;
  readonly numTokens: number;
  readonly attentionTokens: number;
  /** Layers whose attention has a built-in window or soft cap. */
  readonly skippedLayers: readonly number[];
  readonly seed: number;
  readonly taskForm: TaskForm;
  readonly configurations: readonly ConfigurationReport[];
  readonly determinism: readonly DeterminismReport[];
}

const numSpeedAnswer = 16;
/** Number of tokens reserved for questions and answers after the text of a task. */
const taskMargin = 256;

/** @throws {ArgumentError | CapacityError} for options that the model does not support */
export async function evaluateModel(options: EvaluateOptions): Promise<EvaluationReport> {
  checkOptions(options, evaluateNames);
  const { tokens, open, signal } = options;
  const { parts, configurations } = chosenBy(options);
  const has = (part: EvaluationPart): boolean => parts.includes(part);
  const contextSize = contextSizeOf(options);
  options.onProgress?.('base', 0, configurations.length + 1);
  // a model that traces its attention may compute other roundings: it traces in every shard or in none
  const trace = { attention: options.parts.includes('attention') };
  const base = await open({ ...openOptionsOf(baseConfiguration, contextSize), trace });
  try {
    const capture = has('attention') ? await captureOf(base, options) : undefined;
    const maxBytes = options.maxBaseBytes ?? maxBaseBytes;
    const baseRows = has('logits') ? await createBaseRows(base, tokens, { signal, maxBytes }) : undefined;
    const measured = { ...options, parts, configurations };
    const reports = await reportsOf(measured, { base, capture, baseRows, contextSize });
    return {
      model: base.name,
      backend: base.backend,
      numTokens: tokens.length,
      attentionTokens: options.attentionTokens,
      skippedLayers: capture?.skippedLayers ?? [],
      seed: options.seed,
      taskForm: options.taskForm,
      configurations: reports,
      determinism: has('determinism') ? await determinismOf(measured, reports) : [],
    };
  } finally {
    await base.dispose();
  }
}

/** @throws {ArgumentError} for a shard that the options do not have */
function chosenBy({
  configurations,
  parts,
  shard,
}: EvaluateOptions): Pick<EvaluateOptions, 'configurations' | 'parts'> {
  if (shard === undefined) return { configurations, parts };
  const configuration = configurations[shard.configuration];
  if (configuration !== undefined && parts.includes(shard.part)) {
    return { configurations: [configuration], parts: [shard.part] };
  }
  const expected = `a part of ${parts.join(', ')} of one of ${configurations.length} configurations`;
  throw new ArgumentError({ argument: 'shard', expected, actual: JSON.stringify(shard) });
}

interface Base {
  readonly base: Model;
  readonly capture: CaptureResult | undefined;
  readonly baseRows: BaseRows | undefined;
  readonly contextSize: number;
}

async function reportsOf(
  options: EvaluateOptions,
  { base, capture, baseRows, contextSize }: Base,
): Promise<ConfigurationReport[]> {
  const { configurations, tokens, backend, signal, onProgress } = options;
  const synthetic = capture === undefined ? [] : syntheticCaptures(options.attentionTokens, options.seed);
  const reports: ConfigurationReport[] = [];
  for (const [index, configuration] of configurations.entries()) {
    signal?.throwIfAborted();
    onProgress?.(configuration.label, index + 1, configurations.length + 1);
    const attention =
      capture === undefined ? [] : await attentionOf(configuration, capture.captures, synthetic, backend);
    const sizes = { numTokens: tokens.length, numLayers: base.config.numLayers, backend };
    const density = await densitiesOf(configuration, sizes);
    const run = await runConfiguration(configuration, options, contextSize, baseRows);
    reports.push({ label: configuration.label, kvDType: configuration.kvCache.dtype, density, ...run, attention });
  }
  return reports;
}

/** Of the configurations that the engine does not refuse. */
async function determinismOf(
  { configurations, open, tokens, seed, signal, onProgress }: EvaluateOptions,
  reports: readonly ConfigurationReport[],
): Promise<DeterminismReport[]> {
  const few = tokens.subarray(0, Math.min(tokens.length, 96));
  const total = configurations.length + 1;
  const determinism: DeterminismReport[] = [];
  for (const configuration of configurations) {
    if (reports.some(({ label, refusal }) => label === configuration.label && refusal !== undefined)) continue;
    onProgress?.(`determinism of ${configuration.label}`, total, total);
    determinism.push(await checkDeterminism(configuration, { open, tokens: few, seed, signal }));
  }
  return determinism;
}

async function densitiesOf(
  configuration: Configuration,
  options: DensityOptions,
): Promise<Partial<Record<Phase, number>>> {
  const densities: Partial<Record<Phase, number>> = {};
  for (const phase of configuration.phases) {
    const density = await densityOf(configuration, phase, options);
    if (density !== undefined) densities[phase] = density;
  }
  return densities;
}

function contextSizeOf({ tokens, parts, taskLengths, speedLengths }: EvaluateOptions): number {
  const needed = [tokens.length];
  if (parts.includes('tasks')) needed.push(...taskLengths.map((length) => length + taskMargin));
  if (parts.includes('speed')) {
    const longest = Math.max(...speedLengths);
    if (longest > tokens.length) {
      const [expected, actual] = [`lengths up to the ${tokens.length} tokens of the text`, String(longest)];
      throw new ArgumentError({ argument: 'lengths', expected, actual });
    }
    needed.push(longest + numSpeedAnswer);
  }
  return Math.max(...needed);
}

async function captureOf(model: Model, options: EvaluateOptions): Promise<CaptureResult> {
  const { tokens, attentionTokens, signal } = options;
  const layers = options.layers ?? spread(model.config.numLayers, 8);
  return captureAttention(model, tokens.subarray(0, attentionTokens), { layers, signal });
}

/** At most `count` of the numbers below `total`, including the first and the last. */
function spread(total: number, count: number): number[] {
  if (total <= count) return Array.from({ length: total }, (_, i) => i);
  return Array.from({ length: count }, (_, i) => Math.round((i * (total - 1)) / (count - 1)));
}

/** Whether the policy promises an error, bounds the missing mass, or is the oracle beside them. */
function isCovered(policy: AttentionPolicy): boolean {
  return policy.kind === 'page-topk' ? policy.epsilon > 0 : ['verified-topk', 'oracle-topk'].includes(policy.kind);
}

/** Runs each distinct policy of a configuration on every captured layer, over the second half of the text. */
async function attentionOf(
  { attention, kvCache, phases }: Configuration,
  captures: readonly AttentionCapture[],
  synthetic: readonly AttentionCapture[],
  backend: Backend | undefined,
): Promise<AttentionReport[]> {
  const { keys, values } = kvCache.dtype;
  if (keys !== 'f32' || values !== 'f32' || captures.length === 0) return [];
  const policies = new Map<string, { policy: AttentionPolicy; phases: Phase[] }>();
  for (const phase of phases) {
    const policy = attention[phase];
    const text = formatPolicy(policy);
    const entry = policies.get(text);
    if (entry === undefined) policies.set(text, { policy, phases: [phase] });
    else entry.phases.push(phase);
  }
  const reports: AttentionReport[] = [];
  for (const [text, { policy, phases: used }] of policies) {
    const layers: LayerQuality[] = [];
    const ofSynthetic: LayerQuality[] = [];
    const certificates: CertificateReport[] = [];
    const coverage: CoverageReport[] = [];
    const heavySets: HeavySetReport[] = [];
    for (const capture of captures) {
      const begin = Math.floor(capture.q.seqLen / 2);
      layers.push(await measureAttention(policy, capture, begin, backend));
      if (policy.kind === 'page-topk') certificates.push(await measureCertificates(policy, capture, begin, backend));
      if (policy.kind === 'h2o-prefill') heavySets.push(await measureHeavySets(policy, capture, backend));
    }
    for (const capture of [...captures, ...synthetic]) {
      if (!isCovered(policy)) break;
      coverage.push(await measureCoverage(policy, capture, Math.floor(capture.q.seqLen / 16), backend));
    }
    for (const capture of synthetic) {
      ofSynthetic.push(await measureAttention(policy, capture, Math.floor(capture.q.seqLen / 2), backend));
    }
    const captured = meanQuality(layers);
    const measured = { captured, layers, synthetic: ofSynthetic, certificates, coverage, heavySets };
    reports.push({ phases: used, policy: text, ...measured });
  }
  return reports;
}

type ConfigurationRun = Pick<ConfigurationReport, 'refusal' | 'kvBytesPerToken' | 'logits' | 'tasks' | 'speed'>;

async function runConfiguration(
  configuration: Configuration,
  options: EvaluateOptions,
  contextSize: number,
  baseRows: BaseRows | undefined,
): Promise<ConfigurationRun> {
  const { open, tokens, parts, signal, speedLengths } = options;
  const nothing = { kvBytesPerToken: undefined, logits: {}, tasks: [], speed: [] };
  // whether the engine refuses the configuration matters to all parts but this one
  if (parts.every((part) => part === 'attention')) return { ...nothing, refusal: undefined };
  let model: Model;
  try {
    model = await open(openOptionsOf(configuration, contextSize));
  } catch (error) {
    const isRefusal =
      ArgumentError.isInstance(error) || UnsupportedOpError.isInstance(error) || CapacityError.isInstance(error);
    if (!isRefusal) throw error;
    return { ...nothing, refusal: error.message };
  }
  try {
    const logits: Partial<Record<Phase, DivergenceReport>> = {};
    if (baseRows !== undefined) {
      for (const phase of configuration.phases) {
        logits[phase] = await compareForced(baseRows, model, { tokens, phase, signal });
      }
    }
    const speed = parts.includes('speed')
      ? await measureSpeed(model, { tokens, lengths: speedLengths, numAnswer: numSpeedAnswer, signal })
      : [];
    const tasks = parts.includes('tasks')
      ? await runTasks(model, {
          tasks: options.tasks,
          form: options.taskForm,
          lengths: options.taskLengths,
          numCases: options.numCases,
          seed: options.seed,
          decodesQuestions: configuration.attention.decode.kind !== 'dense',
          signal,
        })
      : [];
    return { refusal: undefined, kvBytesPerToken: model.plan.kvBytesPerToken, logits, tasks, speed };
  } finally {
    await model.dispose();
  }
}
