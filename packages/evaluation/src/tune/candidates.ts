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
  /** What one layer takes of each cost that the search saves, as shares of the whole model with dense attention. */
  readonly costs: readonly number[];
  /** Their mean; infinite for one that saves nothing. */
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
    const shares = sharesOf(bench, ms === undefined || base === undefined ? undefined : ms / base, density);
    const costs = shares.map((share) => share / subject.layers.length);
    const saves = index === 0 || meanOf(shares) < 1;
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
    const cost = saves ? meanOf(costs) : Infinity;
    result.push({ phase, policy, parsed, refusal, density, ms, costs, cost, divergences });
  }
  return result;
}

/** Those of the shares of time and pairs that the search saves; infinite where they are not known. */
export function sharesOf({ settings }: TuneBench, time: number = Infinity, pairs: number = Infinity): number[] {
  return { time: [time], pairs: [pairs], both: [time, pairs] }[settings.costs];
}

/** 0 for none: a model without layers that policies change. */
export function meanOf(shares: readonly number[]): number {
  return shares.reduce((sum, share) => sum + share, 0) / Math.max(1, shares.length);
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
