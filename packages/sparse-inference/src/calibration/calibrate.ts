/** Calibrates a model: finds the neurons that matter, trains predictors for them, and measures the loss. */
import { invariant } from '@winnow/tensor';
import type { Sidecar } from '../sidecar/sidecar.js';
import { MatrixProducts } from '../training/matrix-products.js';
import type { CalibrationSource, FeedForwardTrace } from './calibration-source.js';
import { checkpointContent, restoreCheckpoint, type CalibrationPosition } from './checkpoint.js';
import { LayerState } from './layer-state.js';
import { planCalibration, type CalibrateOptions, type CalibrationPlan } from './options.js';
import { readNorms, scanPhase, TrainPhase, type Phase, type PhaseContext } from './phases.js';
import { ProgressCounter } from './progress-counter.js';
import { groupsOf, numStepsOf, splitSamples, totalLength, type SampleParts } from './samples.js';
import { LayerScores, selectPhase } from './select-phase.js';
import { verifyPhase } from './verify-phase.js';

/**
 * Runs a model over text: finds the contributions that make up the energy of the outputs, trains predictors of them
 * from the hidden state, chooses thresholds on held-out text and measures on other held-out text. Hidden states of one
 * group of samples are in memory at a time.
 *
 * The same source, options and backend give the same sidecar to the last bit, even when a run resumes from the
 * checkpoint of an interrupted one.
 * @throws {ArgumentError} for invalid options
 * @throws {FormatError} for a damaged checkpoint
 * @throws the signal's reason when aborted; the checkpoint stays
 */
export async function calibrate(source: CalibrationSource, options: CalibrateOptions): Promise<Sidecar> {
  const plan = planCalibration(source, options);
  const parts = splitSamples(options.samples, plan.config.seed);
  const layers = source.layers.map((shape) => new LayerState(shape, plan.kindOf(shape)));
  const numTrained = layers.filter(({ kind }) => kind === 'low-rank').length;
  const products = new MatrixProducts(options.backend);
  const progress = new ProgressCounter(parts, options.onProgress);
  const context: PhaseContext = {
    source,
    backend: options.backend,
    products,
    config: plan.config,
    groupTokens: plan.groupTokens,
    maxSampleTokens: Math.max(...options.samples.map(({ length }) => length)),
    totalSteps: numStepsOf(groupsOf(parts.train, plan.groupTokens), plan.config.epochs),
    onTrained: (numTokens) => progress.add('train', numTokens / numTrained),
    signal: options.signal,
  };
  const scores = new LayerScores(context);
  try {
    const resumed = await resume(options, plan, layers);
    const position = { phase: 0, group: 0, ...resumed };
    for (const layer of layers) {
      options.signal?.throwIfAborted();
      if (!layer.arrays.has('downNorms')) await readNorms(source, layer);
    }
    const verify = verifyPhase(context, scores, totalLength(parts.verify));
    const phases: readonly Phase[] = [
      scanPhase(context),
      new TrainPhase(context),
      selectPhase(context, scores),
      verify,
    ];
    for (; position.phase < phases.length; position.phase++, position.group = 0) {
      const phase = phases[position.phase];
      invariant(phase, 'a phase at every position');
      const isNew = position.group === 0 && position.phase > (resumed?.phase ?? 0);
      if (isNew) await save(options, plan, position, layers);
      progress.begin(phase.name, groupsOf(parts[phase.part], plan.groupTokens).slice(0, position.group).flat());
      await runPhase(phase, position, { source, plan, parts, layers, options, progress });
    }
    const { weightsHash: modelHash, weightsChecksum } = source;
    return {
      modelHash,
      ...(weightsChecksum === undefined ? {} : { weightsChecksum }),
      config: plan.config,
      layers: layers.map(verify.sparseLayer),
    };
  } finally {
    await scores.dispose();
    await products.close();
  }
}

/** @returns the position of the checkpoint, if there is a matching one */
async function resume(
  { checkpoint, onNotice }: CalibrateOptions,
  { fingerprint }: CalibrationPlan,
  layers: readonly LayerState[],
): Promise<CalibrationPosition | undefined> {
  const file = await checkpoint?.load();
  if (file === undefined) return undefined;
  try {
    const position = await restoreCheckpoint(file, fingerprint, layers);
    onNotice?.(position === undefined ? 'of another calibration: starting over' : 'resuming');
    return position;
  } finally {
    await file.close();
  }
}

async function save(
  { checkpoint }: CalibrateOptions,
  { fingerprint }: CalibrationPlan,
  position: CalibrationPosition,
  layers: readonly LayerState[],
): Promise<void> {
  await checkpoint?.save(checkpointContent(fingerprint, position, layers));
}

interface Run {
  readonly source: CalibrationSource;
  readonly plan: CalibrationPlan;
  readonly parts: SampleParts;
  readonly layers: readonly LayerState[];
  readonly options: CalibrateOptions;
  readonly progress: ProgressCounter;
}

/** Runs a phase from the group of the position on. */
async function runPhase(phase: Phase, position: CalibrationPosition, run: Run): Promise<void> {
  const { source, plan, parts, layers, options, progress } = run;
  const { signal } = options;
  const groups = groupsOf(parts[phase.part], plan.groupTokens);
  const byIndex = new Map(layers.map((layer) => [layer.shape.layer, layer]));
  for (; position.group < groups.length;) {
    for (const sample of groups[position.group] ?? []) {
      signal?.throwIfAborted();
      const observe = async (trace: FeedForwardTrace): Promise<void> => {
        const layer = byIndex.get(trace.layer);
        if (layer !== undefined) await phase.observe(layer, trace);
      };
      await source.trace(sample, observe, signal === undefined ? {} : { signal });
      progress.add(phase.name, sample.length);
    }
    for (const layer of layers) await phase.finishGroup?.(layer, position.group);
    position.group += 1;
    if (phase.isResumable && position.group < groups.length) await save(options, plan, position, layers);
  }
  phase.beginFinish?.(layers);
  for (const layer of layers) await phase.finish(layer);
}
