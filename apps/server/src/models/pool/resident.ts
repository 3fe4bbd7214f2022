/** A model that is in memory, or being loaded or unloaded. */
import type { AvailableModel, ModelKind } from '../../catalog.js';
import type { ModelEntry } from '../model-entry.js';

export interface Resident {
  readonly kind: ModelKind;
  readonly available: AvailableModel;
  /** Aborts the load. */
  readonly canceled: AbortController;
  state: 'loading' | 'loaded' | 'unloading';
  /** Whether the memory of the plan is reserved for it. */
  isAdmitted: boolean;
  memoryBytes: number;
  /** Requests that use it or wait for it. */
  numUsers: number;
  /** Number of the latest use among those of all models. */
  lastUse: number;
  /** Whether new requests wait until it was unloaded for another model. */
  isRetiring: boolean;
  unloadAfterMs: number;
  /** When it will be unloaded if nobody uses it, in milliseconds since 1970. */
  expiresMs: number | undefined;
  timer: NodeJS.Timeout | undefined;
  loaded: Promise<LoadedEntry>;
  entry: LoadedEntry | undefined;
}

export interface LoadedEntry {
  readonly entry: ModelEntry;
  readonly owned: AsyncDisposable;
}

export const keyOf = (kind: ModelKind, id: string): string => `${kind} ${id}`;

/** Whether nothing keeps the model in memory. A generation may outlive the connection of its request. */
export function isIdle({ state, numUsers, entry }: Resident): boolean {
  if (state !== 'loaded' || entry === undefined || numUsers > 0) return false;
  const { slots } = entry.entry;
  return slots.numRunning === 0 && slots.numQueued === 0;
}

/** The model to unload next: the least recently used idle one, or else the least recently used one. */
export function nextVictim(residents: Iterable<Resident>): Resident | undefined {
  const loaded = [...residents].filter(({ state }) => state === 'loaded');
  const byUse = loaded.toSorted((a, b) => a.lastUse - b.lastUse);
  return byUse.find(isIdle) ?? byUse[0];
}
