/** Models that are loaded when they are first asked for, and unloaded when others need their memory. */
import { ApiError, modelNotFound, shuttingDown } from '../../http/api-error.js';
import type { AvailableModel, LoadedModel, ModelCatalog, ModelEvent, ModelKind, UnloadReason } from '../../catalog.js';
import { defaultConcurrency } from '../../options.js';
import type { ModelEntry } from '../model-entry.js';
import type { Slots } from '../slots.js';
import { Changes, Turns, untilAborted } from './changes.js';
import { insufficientMemory, loadApiError, noRoomInTime } from './load-errors.js';
import { isIdle, keyOf, nextVictim, type LoadedEntry, type Resident } from './resident.js';

export interface PoolOptions {
  readonly catalog: ModelCatalog;
  /** Memory of all models together in bytes. */
  readonly memoryBytes: number;
  readonly maxLoaded: number;
  /** Idle time after which models are unloaded; `Infinity`: never. */
  readonly unloadAfterMs: number;
  /** Maximum time that a load waits for memory. */
  readonly waitMs: number;
  readonly now: () => number;
  readonly createSlots: (numSlots: number, onRelease: () => void) => Slots;
  readonly onEvent: (event: ModelEvent) => void;
  readonly reportError: (error: unknown) => void;
}

/** Keeps a model loaded. */
export interface ModelLease {
  readonly entry: ModelEntry;
  /** Idle time after which the model is unloaded from now on. */
  keepFor(milliseconds: number): void;
  /** May be called more than once. */
  release(): void;
}

export interface AvailableStatus {
  readonly available: AvailableModel;
  readonly state: 'loaded' | 'loading' | 'unloaded';
}

export interface LoadedStatus {
  readonly entry: ModelEntry;
  readonly memoryBytes: number;
  readonly expiresMs: number | undefined;
}

/** The longest delay of `setTimeout`. */
const maxTimerMs = 2 ** 31 - 1;

export class ModelPool {
  readonly #options: PoolOptions;
  readonly #residents = new Map<string, Resident>();
  readonly #changes = new Changes();
  readonly #turns = new Turns();
  #numUses = 0;
  #isClosed = false;

  constructor(options: PoolOptions) {
    this.#options = options;
  }

  get memoryBytes(): number {
    return this.#options.memoryBytes;
  }

  get usedBytes(): number {
    return this.#admitted().reduce((total, { memoryBytes }) => total + memoryBytes, 0);
  }

  /** Those of the loaded models. */
  entries(): ModelEntry[] {
    return this.loaded().map(({ entry }) => entry);
  }

  loaded(): LoadedStatus[] {
    return [...this.#residents.values()].flatMap(({ entry, state, memoryBytes, expiresMs }) =>
      entry === undefined || state !== 'loaded' ? [] : [{ entry: entry.entry, memoryBytes, expiresMs }],
    );
  }

  /** The models of the catalog, and those that are loaded or loading without being listed there. */
  async list(): Promise<AvailableStatus[]> {
    const models = new Map((await this.#options.catalog.list()).map((available) => [available.id, available]));
    for (const { available } of this.#residents.values()) models.set(available.id, available);
    return [...models.values()].map((available) => ({ available, state: this.#stateOf(available.id) }));
  }

  /**
   * Waits until the model is loaded. Requests for the same model share one load, which goes on as long as one of them
   * waits.
   * @throws {ApiError} 404 for an unknown model, 503 when it does not fit the memory, 400 or 500 when it cannot be loaded
   * @throws the signal's reason
   */
  async acquire(kind: ModelKind, name: string, signal: AbortSignal): Promise<ModelLease> {
    const available = await untilAborted(this.#options.catalog.find(name), signal);
    if (available === undefined) throw modelNotFound(name);
    for (;;) {
      if (this.#isClosed) throw shuttingDown(1);
      const resident = this.#residents.get(keyOf(kind, available.id)) ?? this.#startLoad(kind, available);
      if (resident.state === 'unloading' || resident.isRetiring || resident.canceled.signal.aborted) {
        await this.#changes.next(signal);
        continue;
      }
      resident.numUsers++;
      resident.lastUse = ++this.#numUses;
      stopTimer(resident);
      try {
        const { entry } = await untilAborted(resident.loaded, signal);
        return this.#leaseOf(resident, entry);
      } catch (error) {
        this.#leave(resident);
        throw error;
      }
    }
  }

  /** Unloads a model as soon as nobody uses it. Returns whether there is such a model, loaded or not. */
  async expire(name: string): Promise<boolean> {
    const available = await this.#options.catalog.find(name);
    for (const resident of this.#residents.values()) {
      if (resident.available.id !== available?.id) continue;
      resident.unloadAfterMs = 0;
      this.#settle(resident);
    }
    return available !== undefined;
  }

  /** Rejects new requests and those that wait. */
  close(): void {
    this.#isClosed = true;
    for (const { state, canceled, entry } of this.#residents.values()) {
      if (state === 'loading') canceled.abort(shuttingDown(1));
      else entry?.entry.slots.close();
    }
    this.#changes.notify();
  }

  /** Unloads all models, after their requests have ended. */
  async dispose(): Promise<void> {
    this.close();
    const residents = [...this.#residents.values()];
    await Promise.allSettled(residents.map(({ loaded }) => loaded));
    await Promise.all(
      residents.filter(({ state }) => state === 'loaded').map((each) => this.#unload(each, 'shutdown')),
    );
    while (this.#residents.size > 0) await this.#changes.next(never);
  }

  #admitted(): Resident[] {
    return [...this.#residents.values()].filter(({ isAdmitted }) => isAdmitted);
  }

  #stateOf(id: string): AvailableStatus['state'] {
    const states = [...this.#residents.values()].flatMap((each) => (each.available.id === id ? [each.state] : []));
    if (states.includes('loaded')) return 'loaded';
    return states.includes('loading') ? 'loading' : 'unloaded';
  }

  #startLoad(kind: ModelKind, available: AvailableModel): Resident {
    const resident: Resident = {
      ...{ kind, available, canceled: new AbortController(), state: 'loading', isAdmitted: false, memoryBytes: 0 },
      ...{ numUsers: 0, lastUse: 0, isRetiring: false, expiresMs: undefined, timer: undefined, entry: undefined },
      unloadAfterMs: available.unloadAfterMs ?? this.#options.unloadAfterMs,
      loaded: neverLoaded,
    };
    this.#residents.set(keyOf(kind, available.id), resident);
    resident.loaded = this.#load(resident);
    resident.loaded.catch(() => {}); // everyone who waited may have left
    return resident;
  }

  async #load(resident: Resident): Promise<LoadedEntry> {
    const { kind, available, canceled } = resident;
    const { now, onEvent } = this.#options;
    const model = available.id;
    const startMs = now();
    onEvent({ event: 'loading', model, kind });
    try {
      const entry = this.#entryOf(resident, await this.#loadModel(resident));
      resident.entry = entry;
      resident.state = 'loaded';
      onEvent({ event: 'loaded', model, kind, durationMs: now() - startMs, memoryBytes: resident.memoryBytes });
      return entry;
    } catch (error) {
      resident.state = 'unloading';
      this.#residents.delete(keyOf(kind, model));
      const durationMs = now() - startMs;
      if (canceled.signal.aborted) {
        onEvent({ event: 'canceled', model, kind, durationMs });
        throw canceled.signal.reason;
      }
      onEvent({ event: 'failed', model, kind, durationMs, error });
      throw loadApiError(model, kind, error);
    } finally {
      this.#changes.notify();
    }
  }

  async #loadModel(resident: Resident): Promise<LoadedModel> {
    const { kind, available, canceled } = resident;
    const { signal } = canceled;
    const prepared = await available.prepare(kind, { signal });
    if (prepared === undefined) throw modelNotFound(available.id);
    await this.#makeRoom(resident, prepared.memoryBytes);
    const loaded = await prepared.load({ signal });
    if (loaded.kind === 'generative') resident.memoryBytes = loaded.model.plan?.totalBytes ?? prepared.memoryBytes;
    if (!signal.aborted) return loaded;
    await loaded.model[Symbol.asyncDispose]();
    throw signal.reason;
  }

  #entryOf(resident: Resident, loaded: LoadedModel): LoadedEntry {
    const { available } = resident;
    const onRelease = (): void => this.#settle(resident);
    // calls of other models are serialized
    const numSlots = loaded.kind === 'generative' ? (available.maxSessions ?? defaultConcurrency) : 1;
    const slots = this.#options.createSlots(numSlots, onRelease);
    return { entry: { ...loaded, id: available.id, slots }, owned: loaded.model };
  }

  /** Unloads others until the model fits. Models that wait for memory get it in the order of their requests. */
  async #makeRoom(resident: Resident, neededBytes: number): Promise<void> {
    const { memoryBytes, maxLoaded, waitMs } = this.#options;
    const { id } = resident.available;
    if (neededBytes > memoryBytes) throw insufficientMemory(id, neededBytes, memoryBytes);
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(noRoomInTime(id, waitMs)), waitMs);
    const signal = AbortSignal.any([resident.canceled.signal, late.signal]);
    const fits = (): boolean => this.usedBytes + neededBytes <= memoryBytes && this.#admitted().length < maxLoaded;
    try {
      await this.#turns.run(async () => {
        try {
          while (!fits()) await this.#unloadNext(signal);
        } finally {
          for (const each of this.#residents.values()) each.isRetiring = false;
          this.#changes.notify();
        }
        resident.isAdmitted = true;
        resident.memoryBytes = neededBytes;
      }, signal);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Unloads an idle model, or waits until one is: then new requests for it wait until the waiting model is loaded. */
  async #unloadNext(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    const victim = nextVictim(this.#residents.values());
    if (victim !== undefined && isIdle(victim)) return this.#unload(victim, 'memory');
    if (victim !== undefined) victim.isRetiring = true;
    await this.#changes.next(signal);
  }

  async #unload(resident: Resident, reason: UnloadReason): Promise<void> {
    const { kind, available, entry, memoryBytes } = resident;
    const { onEvent, reportError } = this.#options;
    resident.state = 'unloading';
    stopTimer(resident);
    entry?.entry.slots.close();
    try {
      await entry?.owned[Symbol.asyncDispose]();
    } catch (error) {
      reportError(error);
    }
    this.#residents.delete(keyOf(kind, available.id));
    onEvent({ event: 'unloaded', model: available.id, kind, reason, memoryBytes });
    this.#changes.notify();
  }

  #leaseOf(resident: Resident, entry: ModelEntry): ModelLease {
    let isReleased = false;
    return {
      entry,
      keepFor: (milliseconds) => {
        resident.unloadAfterMs = milliseconds;
      },
      release: () => {
        if (isReleased) return;
        isReleased = true;
        this.#leave(resident);
      },
    };
  }

  #leave(resident: Resident): void {
    resident.numUsers--;
    if (resident.state === 'loading' && resident.numUsers === 0) {
      resident.canceled.abort(new ApiError({ status: 499, message: 'nobody waits for the model', code: 'canceled' }));
    }
    this.#settle(resident);
  }

  /** Starts the idle time of a model that nobody uses any more. */
  #settle(resident: Resident): void {
    this.#changes.notify();
    stopTimer(resident);
    const { unloadAfterMs } = resident;
    if (!isIdle(resident) || unloadAfterMs === Infinity || this.#isClosed) return;
    if (unloadAfterMs === 0) {
      void this.#unload(resident, 'idle');
      return;
    }
    const milliseconds = Math.min(unloadAfterMs, maxTimerMs);
    resident.expiresMs = Date.now() + milliseconds;
    resident.timer = setTimeout(() => void this.#unload(resident, 'idle'), milliseconds).unref();
  }
}

const never = new AbortController().signal;
const neverLoaded = new Promise<LoadedEntry>(() => {});

function stopTimer(resident: Resident): void {
  clearTimeout(resident.timer);
  resident.timer = undefined;
  resident.expiresMs = undefined;
}
