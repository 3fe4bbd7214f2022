/** What each candidate costs in all layers, and what it diverges by in one. */
import {
  denseAttention,
  formatPolicy,
  parseAttention,
  parsePolicy,
  type AttentionPolicy,
  type AttentionSpec,
} from '@winnow/sparse-attention';
import { ArgumentError } from '@winnow/tensor';
import { densityOf } from '../attention/density.js';
import type { Phase } from '../configuration.js';
import { candidatePolicies, uniformPolicies } from '../policies.js';
import { isRefusal, type PhaseTimes, type TuneBench } from './bench.js';
import type { CandidateReport } from './options.js';

/** The model as far as a search depends on it. */
export interface TuneSubject {
  readonly numLayers: number;
  readonly headDim: number;
  /** Layers in which a policy changes anything: with a KV cache, and without a window below the context. */
  readonly layers: readonly number[];
}

/** A candidate of one phase. */
export interface Candidate extends CandidateReport {
  readonly parsed: AttentionPolicy;
  /** Cost of one layer as a share of the time (or the pairs) of the whole model with dense attention. */
  readonly cost: number;
  readonly divergences: readonly (number | undefined)[];
}

/** The policy in all layers, or in one, of a phase; everything else dense. */
export function specOf(phase: Phase, policy: AttentionPolicy, layer?: number): AttentionSpec {
  if (layer === undefined) return { ...denseAttention, [phase]: policy };
  return { ...denseAttention, layers: [{ first: layer, last: layer, phase, policy }] };
}

/** The candidates of a phase, parsed. @throws {ArgumentError} for one that the phase does not support */
export function parsedCandidates(bench: TuneBench, phase: Phase, { headDim }: TuneSubject): AttentionPolicy[] {
  const { candidates, numTokens } = bench.settings;
  const texts = candidates?.[phase] ?? candidatePolicies(phase, numTokens, headDim);
  return texts.map((text) => parsePolicy(text, `candidates.${phase}`));
}

/** The policies of all layers that the result is compared with. @throws {ArgumentError} for one that the phase does not support */
export function uniformOf(bench: TuneBench, phase: Phase, { headDim }: TuneSubject): AttentionPolicy[] {
  const { uniform, numTokens } = bench.settings;
  const texts = uniform?.[phase] ?? uniformPolicies(phase, numTokens, headDim);
  return texts.map((text) => parseAttention(text)[phase]);
}

/** Visited pairs divided by dense pairs; undefined where they depend on the values. */
export function densityOfSpec(
  bench: TuneBench,
  spec: AttentionSpec,
  phase: Phase,
  { numLayers }: TuneSubject,
): Promise<number | undefined> {
  const { numTokens, backend } = bench.settings;
  return densityOf({ attention: spec }, phase, { numTokens, numLayers, backend });
}

/**
 * Measures the candidates of a phase. A candidate that saves nothing is not measured layer by layer. The first of the
 * result is dense.
 * @param times of dense attention, then of each candidate in all layers; undefined when pairs are the costs
 */
export async function measureCandidates(
  bench: TuneBench,
  phase: Phase,
  subject: TuneSubject,
  times: readonly (PhaseTimes | string)[] | undefined,
): Promise<Candidate[]> {
  const policies = parsedCandidates(bench, phase, subject);
  const { signal, onProgress } = bench.settings;
  const result: Candidate[] = [];
  const base = msOf(times?.[0], phase);
  for (const [index, parsed] of [denseAttention[phase], ...policies].entries()) {
    const policy = formatPolicy(parsed);
    const time = times?.[index];
    const ms = msOf(time, phase);
    const density = await densityOfSpec(bench, specOf(phase, parsed), phase, subject);
    const share = shareOf(bench, ms === undefined || base === undefined ? undefined : ms / base, density);
    const cost = share / subject.layers.length;
    const saves = index === 0 || share < 1;
    const divergences: (number | undefined)[] = [];
    const refusals: string[] = [];
    for (let layer = 0; layer < subject.numLayers; layer++) {
      signal?.throwIfAborted();
      const done = (index - 1) * subject.numLayers + layer;
      const isMeasured = index > 0 && saves && subject.layers.includes(layer);
      if (isMeasured) onProgress?.(`${phase}, layer ${layer}: ${policy}`, done, policies.length * subject.numLayers);
      const measured = isMeasured ? await divergenceOf(bench, phase, parsed, layer) : index === 0 ? 0 : undefined;
      divergences.push(typeof measured === 'number' ? measured : undefined);
      if (typeof measured === 'string') refusals.push(measured);
    }
    // a policy that no layer can have
    const isRefused = refusals.length > 0 && divergences.every((divergence) => divergence === undefined);
    const refusal = typeof time === 'string' ? time : isRefused ? refusals[0] : undefined;
    result.push({ phase, policy, parsed, refusal, density, ms, cost: saves ? cost : Infinity, divergences });
  }
  return result;
}

/** A cost as a share of that of dense attention, from the shares of time and pairs; infinite where these are not known. */
export function shareOf({ settings }: TuneBench, time: number = Infinity, pairs: number = Infinity): number {
  return { time, pairs, both: (time + pairs) / 2 }[settings.costs];
}

/** The mean, or why the engine refuses the policy. */
async function divergenceOf(
  bench: TuneBench,
  phase: Phase,
  policy: AttentionPolicy,
  layer: number,
): Promise<number | string | undefined> {
  try {
    const { [phase]: measured } = await bench.divergence(specOf(phase, policy, layer), 'search', [phase]);
    return measured?.mean;
  } catch (error) {
    if (!isRefusal(error)) throw error;
    return error.message;
  }
}

function msOf(time: PhaseTimes | string | undefined, phase: Phase): number | undefined {
  return typeof time === 'object' ? time[phase] : undefined;
}

/** @throws {ArgumentError} when dense attention itself cannot run */
export function checkDense(time: PhaseTimes | string): PhaseTimes {
  if (typeof time === 'object') return time;
  throw new ArgumentError({ argument: 'model', expected: 'one that runs with dense attention', actual: time });
}
