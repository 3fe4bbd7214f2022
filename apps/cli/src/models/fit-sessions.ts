/** Chooses as many concurrent sequences as the memory holds. */
import { freemem } from 'node:os';
import type { LoadFlags } from '../flags/load.js';
import { inspectModel, type OpenContext } from './open-model.js';

/** The number of sequences of one step of the engine. */
const maxSequences = 32;
/** Share of the free memory that the model may use without `--memory`. */
const shareOfFree = 0.5;

/** Flags with sessions, and a KV cache in which each has room for its context. */
export type SessionFlags = LoadFlags & Required<Pick<LoadFlags, 'maxSessions' | 'kvCapacity'>>;

/**
 * Plans the model with one and with two sessions, and concludes how many fit `--memory`, or half of the free memory.
 * Given flags stay as they are.
 * @param numModels that share the memory in equal parts
 */
export async function fitSessions(
  model: string | undefined,
  given: LoadFlags,
  context: OpenContext,
  numModels = 1,
): Promise<SessionFlags> {
  const flags = given.memory === undefined ? given : { ...given, memory: Math.floor(given.memory / numModels) };
  const { plan: one } = await inspectModel(model, { ...flags, maxSessions: 1 }, context);
  const { contextSize } = one;
  const sessions = (count: number): SessionFlags => ({
    ...flags,
    maxSessions: count,
    kvCapacity: flags.kvCapacity ?? count * contextSize,
  });
  if (flags.maxSessions !== undefined) return sessions(flags.maxSessions);
  const { plan: two } = await inspectModel(model, { ...flags, maxSessions: 2, kvCapacity: 2 * contextSize }, context);
  const room = (flags.memory ?? (freemem() * shareOfFree) / numModels) - one.totalBytes;
  const more = Math.floor(room / Math.max(1, two.totalBytes - one.totalBytes));
  return sessions(Math.max(1, Math.min(maxSequences, 1 + more)));
}
