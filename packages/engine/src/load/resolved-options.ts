/** The options of `loadModel`, resolved. */
import { checkOptions } from '@winnow/tensor';
import type { Host } from '../generation/loaded-model.js';
import { speculativeOf } from '../generation/draft-model.js';
import { guardedListener, type ReportEvent } from '../metrics/events.js';
import { autoAttention, policyFileOf } from '../plan/auto-attention.js';
import type { ResolvedPlanOptions } from '../plan/options.js';
import { checkWeightTiers } from '../weight-offload/options.js';
import type { ModelLocation } from './location.js';
import { loadOptionNames, type LoadOptions } from './options.js';

/** Options that are the caller's, or that `ResolvedOptions` names differently. */
type UnresolvedNames = keyof ResolvedPlanOptions | 'onEvent' | 'now' | 'randomSeed';

/**
 * The options of `loadModel` with their defaults, apart from those that depend on the model's files. Made once, where
 * the call arrives; every function after it reads this object.
 */
export interface ResolvedOptions extends Omit<LoadOptions, UnresolvedNames>, ResolvedPlanOptions {
  /** The caller's listener, whose errors do not reach the engine. */
  readonly report: ReportEvent;
  /** Reports a sentence. */
  readonly notice: (text: string) => void;
  readonly host: Host;
}

/**
 * @param location where the model comes from: its policy file is beside it
 * @throws {UnknownOptionError} for an option that does not exist
 * @throws {ArgumentError} for options that contradict each other
 */
export function resolveOptions(options: LoadOptions, location: ModelLocation): ResolvedOptions {
  checkOptions(options, loadOptionNames);
  checkWeightTiers(options.memory);
  const { onEvent, now, randomSeed, ...others } = options;
  const globals = globalThis as unknown as Globals;
  const report = guardedListener(onEvent);
  return {
    ...others,
    kvCache: options.kvCache ?? {},
    attention: options.attention ?? 'dense',
    policyFile: options.policyFile ?? policyFileBeside(location, options.attention),
    speculative: speculativeOf(options),
    report,
    notice: (text) => report({ kind: 'notice', text }),
    host: {
      now: now ?? ((): number => globals.performance.now()),
      randomSeed: randomSeed ?? ((): number => globals.crypto.getRandomValues(new Uint32Array(1))[0] as number),
    },
  };
}

/** Where `attention: 'auto'` looks for the policy file; undefined for models without a place. */
function policyFileBeside(location: ModelLocation, attention: LoadOptions['attention']): string | undefined {
  const hasPlace = typeof location === 'string' || location instanceof URL;
  return hasPlace && attention === autoAttention ? policyFileOf(location) : undefined;
}

interface Globals {
  readonly performance: { now(): number };
  readonly crypto: { getRandomValues(target: Uint32Array): Uint32Array };
}
