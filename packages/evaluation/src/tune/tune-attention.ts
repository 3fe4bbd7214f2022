/**
 * Finds the attention policies of a model's layers within a budget: sensitivities of single layers, allocations of
 * each phase, the cheapest pair of both, and a check on text that the search has not seen.
 */
import type { Model } from '@winnow/engine';
import { checkAttention, denseAttention, formatAttention, formatPolicy } from '@winnow/sparse-attention';
import { baseConfiguration, openOptionsOf, type Phase } from '../configuration.js';
import { TuneBench, type PhaseTimes } from './bench.js';
import {
  checkDense,
  densityOfSpec,
  measureCandidates,
  parsedCandidates,
  specOf,
  uniformOf,
  type Candidate,
  type TuneSubject,
} from './candidates.js';
import { Measurements } from './checkpoint.js';
import { compareHeldOut } from './comparison.js';
import { boundsOf, measureFront, type FrontPoint } from './front.js';
import {
  settingsOf,
  type LayerChoice,
  type PolicyPoint,
  type TuneOptions,
  type TuneReport,
  type TuneSettings,
  type TuneText,
  type UniformComparison,
} from './options.js';
import { meanScore, pairsOf, selectPair, type Selection } from './select.js';

const phases: readonly Phase[] = ['prefill', 'decode'];

/**
 * Searches, and reports what it found. A search that was stopped continues from its checkpoint. Everything but times
 * depends only on the options; with `costs: 'pairs'` so does the choice of policies.
 * @throws {ArgumentError} for options out of range, and for a speed-up that no policy reaches
 * @throws the signal's reason when aborted
 */
export async function tuneAttention(options: TuneOptions): Promise<TuneReport> {
  const settings = settingsOf(options);
  const { budget, costs, onNotice } = settings;
  const measured = await Measurements.open(fingerprintOf(settings), settings.checkpoint, (text) => onNotice?.(text));
  const bench = new TuneBench(settings, measured);
  const model = await describe(settings);
  const { subject } = model;
  const candidates: Record<Phase, Candidate[]> = { prefill: [], decode: [] };
  const fronts: Record<Phase, FrontPoint[]> = { prefill: [], decode: [] };
  const times: Partial<Record<Phase, readonly (PhaseTimes | string)[]>> = {};
  let denseTimes: PhaseTimes | undefined;
  for (const phase of costs === 'pairs' ? [] : phases) {
    const specs = parsedCandidates(bench, phase, subject).map((policy) => specOf(phase, policy));
    times[phase] = await bench.times(`candidates, ${phase}`, [denseAttention, ...specs]);
    denseTimes ??= checkDense(times[phase][0] ?? 'not run');
  }
  for (const phase of phases) {
    candidates[phase] = await measureCandidates(bench, phase, subject, times[phase]);
    const bounds = boundsOf('kld' in budget ? budget.kld : undefined);
    const uniform = uniformOf(bench, phase, subject);
    fronts[phase] = await measureFront(bench, phase, { candidates: candidates[phase], subject, uniform, bounds });
  }
  const pairs = pairsOf(fronts.prefill, fronts.decode, sharesOf(bench, denseTimes));
  const selection = await selectPair(bench, pairs, budget, async ({ spec }) => {
    const [dense, tuned] = await bench.times(`speed-up of ${formatAttention(spec)}`, [denseAttention, spec]);
    return typeof tuned === 'object'
      ? totalOf(bench, tuned) / totalOf(bench, checkDense(dense as PhaseTimes))
      : Infinity;
  });
  return report(bench, model, { candidates, fronts, selection });
}

interface Described {
  readonly name: string;
  readonly backend: string;
  readonly subject: TuneSubject;
}

async function describe(settings: TuneSettings): Promise<Described> {
  const model = await settings.open(openOptionsOf(baseConfiguration, settings.numTokens + 1));
  try {
    const { config, name, backend } = model;
    return { name, backend, subject: subjectOf(config, settings.numTokens) };
  } finally {
    await model.dispose();
  }
}

function subjectOf(config: Model['config'], numTokens: number): TuneSubject {
  const { numLayers, headDim, recurrentLayers, slidingWindow, windowedLayers } = config;
  const isWindowed = (layer: number): boolean =>
    slidingWindow > 0 && slidingWindow < numTokens && windowedLayers?.[layer] !== false;
  const all = Array.from({ length: numLayers }, (_, layer) => layer);
  const layers = all.filter((layer) => recurrentLayers?.[layer] !== true && !isWindowed(layer));
  return { numLayers, headDim, layers };
}

/** Shares of the cost of a prompt and its answer with dense attention; of its pairs without times. */
function sharesOf(bench: TuneBench, denseTimes: PhaseTimes | undefined): Record<Phase, number> {
  const { numDecoded } = bench.settings;
  const { numPrompt } = bench;
  // pairs: a triangle of the prompt, and all earlier tokens for each decoded one
  const pairs = { prefill: (numPrompt * (numPrompt + 1)) / 2, decode: numPrompt + (numDecoded + 1) / 2 };
  const times = denseTimes ?? pairs;
  const total = totalOf(bench, times);
  return { prefill: times.prefill / total, decode: (numDecoded * times.decode) / total };
}

function totalOf({ settings }: TuneBench, { prefill, decode }: PhaseTimes): number {
  return prefill + settings.numDecoded * decode;
}

/** Everything that stored measurements depend on. The budget is not part of it. */
function fingerprintOf(settings: TuneSettings): string {
  const { modelHash, search, heldOut, machine, numRows, numDecoded, seed } = settings;
  const { taskForm, taskLength, tasks, numCases } = settings;
  const texts = [search, heldOut].map(hashOf);
  return JSON.stringify({
    version: 1,
    modelHash,
    texts,
    machine,
    numRows,
    numDecoded,
    seed,
    taskForm,
    taskLength,
    tasks,
    numCases,
  });
}

/**
 * FNV-1a, 64 bits (http://www.isthe.com/chongo/tech/comp/fnv/), over the length and the tokens of each window, a number
 * where FNV-1a has a byte. Not secure.
 */
function hashOf({ windows }: TuneText): string {
  let hash = 0xcbf29ce484222325n;
  for (const window of windows) {
    for (const token of [window.length, ...window]) hash = BigInt.asUintN(64, (hash ^ BigInt(token)) * 0x100000001b3n);
  }
  return `fnv:${hash.toString(16).padStart(16, '0')}`;
}

interface Found {
  readonly candidates: Readonly<Record<Phase, readonly Candidate[]>>;
  readonly fronts: Readonly<Record<Phase, readonly FrontPoint[]>>;
  readonly selection: Selection;
}

async function report(
  bench: TuneBench,
  model: Described,
  { candidates, fronts, selection }: Found,
): Promise<TuneReport> {
  const { settings } = bench;
  const { spec } = selection;
  const points: PolicyPoint[] = [];
  const comparisons: UniformComparison[] = [];
  for (const phase of phases) {
    const compared = await compareHeldOut(bench, phase, fronts[phase], model.subject);
    points.push(...compared.front);
    comparisons.push(...compared.comparisons);
  }
  const kld = await bench.divergence(spec, 'heldOut', phases);
  const [denseTimes, tunedTimes] = (await bench.times('result', [denseAttention, spec])).map(
    checkDense,
  ) as PhaseTimes[];
  const [tasks, denseTasks] = [await bench.tasks(spec, 'heldOut'), await bench.tasks(denseAttention, 'heldOut')];
  const figuresOf = async (phase: Phase) => {
    const density = await densityOfSpec(bench, spec, phase, model.subject);
    return {
      kld: kld[phase]?.mean ?? 0,
      kldError: kld[phase]?.error ?? 0,
      ...(density === undefined ? {} : { density }),
      ms: (tunedTimes as PhaseTimes)[phase],
      denseMs: (denseTimes as PhaseTimes)[phase],
    };
  };
  const textOf = ({ name, windows }: TuneText) => {
    const numTokens = windows.reduce((sum, { length }) => sum + length, 0);
    return { name, numTokens, hash: hashOf({ name, windows }) };
  };
  return {
    model: model.name,
    policy: {
      ...{ modelHash: settings.modelHash, numLayers: model.subject.numLayers, attention: checkAttention(spec) },
      ...{ budget: settings.budget, contextSize: settings.numTokens, seed: settings.seed },
      measured: {
        ...{ prefill: await figuresOf('prefill'), decode: await figuresOf('decode') },
        ...(tasks.length === 0 ? {} : { recall: meanScore(tasks), denseRecall: meanScore(denseTasks) }),
      },
      text: { search: textOf(settings.search), heldOut: textOf(settings.heldOut) },
      machine: { name: settings.machine, backend: model.backend },
    },
    attention: formatAttention(spec),
    costs: settings.costs,
    layers: layersOf(selection),
    candidates: phases.flatMap((phase) =>
      candidates[phase].map(({ parsed: _parsed, costs: _costs, cost: _cost, ...rest }) => rest),
    ),
    ...{ front: points, comparisons },
    speedup: totalOf(bench, denseTimes as PhaseTimes) / totalOf(bench, tunedTimes as PhaseTimes),
    ...{ tasks, denseTasks },
  };
}

function layersOf({ prefill, decode }: Selection): LayerChoice[] {
  return prefill.policies.map((policy, layer) => ({
    layer,
    prefill: formatPolicy(policy),
    decode: formatPolicy(decode.policies[layer] as typeof policy),
    divergence: { prefill: prefill.divergences[layer] as number, decode: decode.divergences[layer] as number },
  }));
}
