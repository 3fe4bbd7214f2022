/** Creates the speculation of a generation. */
import { ArgumentError } from '@winnow/tensor';
import type { LoadedModel } from '../loaded-model.js';
import type { Sequence } from '../../runtime/sequence.js';
import type { ModelDrafter } from './drafter.js';
import { LookupDrafter } from './lookup-drafter.js';
import { SelfDrafter, SmallerDrafter } from './model-drafters.js';
import { checkSpeculative, selfPolicyOf, type Speculative } from '../../plan/speculative.js';
import { Speculation } from './speculation.js';

/**
 * @param given the option of the generation; by default that of the model
 * @throws {ArgumentError} for another kind, one that the model was not loaded for, and where a step cannot verify drafts
 */
export function createSpeculation(
  model: LoadedModel,
  sequence: Sequence,
  given: Speculative | undefined,
): Speculation | undefined {
  const { scheduler, config, host, speculation, stepCosts } = model;
  const kind = given === undefined ? model.speculative : checkSpeculative(given);
  if (kind === 'off' || (kind === 'auto' && !scheduler.verifiesDrafts)) return undefined;
  if (!scheduler.verifiesDrafts) {
    const reason = model.draftObstacle ?? 'the model was loaded without speculative';
    throw new ArgumentError({ argument: 'speculative', expected: `off | auto, since ${reason}`, actual: kind });
  }
  const lookup = kind === 'lookup' || kind === 'auto' ? new LookupDrafter(config.vocabSize) : undefined;
  const drafter = modelDrafter(model, sequence, kind);
  return new Speculation({ lookup, model: drafter, counts: speculation, costs: stepCosts, now: host.now });
}

function modelDrafter(model: LoadedModel, sequence: Sequence, kind: Speculative): ModelDrafter | undefined {
  const { scheduler, draftModel } = model;
  const isSelf = kind === 'self' || selfPolicyOf(kind) !== undefined;
  const isLoaded = selfPolicyOf(model.speculative) !== undefined && (kind === 'self' || kind === model.speculative);
  if (isSelf && !isLoaded) {
    const expected = 'self, of a model loaded with self=POLICY';
    throw new ArgumentError({ argument: 'speculative', expected, actual: kind });
  }
  if (kind === 'draft' && draftModel === undefined) {
    throw new ArgumentError({ argument: 'speculative', expected: 'a model loaded with draftModel', actual: kind });
  }
  if (kind === 'lookup') return undefined;
  if (draftModel !== undefined && !isSelf) return new SmallerDrafter(draftModel);
  return scheduler.canDraft ? new SelfDrafter(scheduler, sequence) : undefined;
}
