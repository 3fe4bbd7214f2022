/**
 * Runs programs with offloaded experts or neurons: at each layer's boundary it loads the active ones into slots and
 * prefetches those that the next layer will probably need. It also counts what sparse programs compute.
 */
import { neuronGroup, type BufferHandle, type Executable, type RunOptions } from '@winnow/ops';
import type { NeuronCache } from '@winnow/sparse-inference';
import { invariant } from '@winnow/tensor';
import type { FeedForwardMetrics, FeedForwardLayerMetrics } from '../metrics/feed-forward.js';
import type { BusyTime } from '../metrics/busy-time.js';
import { lossBehind } from '../memory/device-recovery.js';
import { choiceNames, parseBoundary, slotNames } from './program.js';
import type { FeedForwardParts } from './parts.js';
import type { PlannedTierLayer } from './plan.js';

interface LayerCounts {
  numSteps: number;
  numActive: number;
  numBatches: number;
  numBatchActive: number;
  waitedMs: number;
  numPasses: number;
}

/** The state of an offloaded layer during a step. */
interface TierState {
  readonly planned: PlannedTierLayer;
  /** Its index in the cache. */
  readonly index: number;
  readonly map: Int32Array; // [X], experts
  readonly ids: Int32Array; // active items, ascending; with several passes, experts in slots come first
  readonly rows: Int32Array;
  readonly predicted: Int32Array;
  count: number;
  /** How many of the ids have been loaded. */
  done: number;
  /** Whether the program has received a pass without items. */
  isOver: boolean;
}

export class WeightOffloader {
  readonly #parts: FeedForwardParts;
  readonly #cacheOf: (() => NeuronCache) | undefined;
  readonly #reads: BusyTime;
  /** Number of neurons of the sparse layers. */
  readonly #ffnDims: ReadonlyMap<number, number>;
  readonly #counts = new Map<number, LayerCounts>();
  readonly #states = new Map<number, TierState>();
  readonly #wrapped: Executable[] = [];

  /**
   * @param cacheOf present with tiers: the cache of the present device
   * @param reads how long reads were in progress
   */
  constructor(parts: FeedForwardParts, cacheOf: (() => NeuronCache) | undefined, reads: BusyTime) {
    this.#parts = parts;
    this.#cacheOf = cacheOf;
    this.#reads = reads;
    this.#ffnDims = parts.sparse?.ffnDims ?? new Map();
    const layers = parts.tiers?.layers ?? [];
    for (const [index, planned] of layers.entries()) {
      const { numItems } = planned;
      const [map, ids, rows] = [new Int32Array(numItems), new Int32Array(numItems), new Int32Array(numItems)];
      const predicted = new Int32Array(layers[index + 1]?.numItems ?? 0);
      this.#states.set(planned.layer, { planned, index, map, ids, rows, predicted, count: 0, done: 0, isOver: false });
    }
  }

  /** Wraps a program so that its weights are loaded while it runs. */
  wrap(executable: Executable): Executable {
    const { outputs } = executable.program;
    const counted = [...this.#ffnDims.keys()].filter((layer) => outputs.has(choiceNames.count(layer)));
    const tiered = [...this.#states.values()].filter(({ planned }) => outputs.has(choiceNames.ids(planned.layer)));
    if (counted.length === 0 && tiered.length === 0) return executable;
    this.#wrapped.push(executable);
    const chosen = new ChosenReader(executable);
    return {
      program: executable.program,
      fallbacks: executable.fallbacks,
      run: (scalars, options = {}) => this.#run(executable, chosen, counted, tiered, scalars, options),
      read: (output, target) => executable.read(output, target),
      profile: () => executable.profile(),
      dispose: () => executable.dispose(),
    };
  }

  metrics(): FeedForwardMetrics {
    const cache = this.#cacheOf?.();
    const layers = [...this.#counts].toSorted(([a], [b]) => a - b);
    const times = profileOf(this.#wrapped);
    return {
      layers: layers.map(([layer, total]) => this.#layerMetrics(layer, total, times.get(layer))),
      ...(cache === undefined
        ? {}
        : {
            cache: cache.statistics(),
            waitedMs: [...this.#counts.values()].reduce((sum, { waitedMs }) => sum + waitedMs, 0),
            readMs: this.#reads.busyMs(),
          }),
    };
  }

  #layerMetrics(layer: number, total: LayerCounts, profile: LayerTimes | undefined): FeedForwardLayerMetrics {
    const state = this.#states.get(layer);
    const numItems = this.#ffnDims.get(layer) ?? state?.planned.numItems ?? 0;
    const share = (active: number, steps: number): number => (steps === 0 ? 0 : active / steps / numItems);
    const { numSteps, numActive, numBatches, numBatchActive, numPasses, waitedMs } = total;
    const cached = state && this.#cacheOf?.().statistics().layers[state.index];
    return {
      layer,
      numItems,
      numSteps,
      activeRatio: share(numActive, numSteps),
      numBatches,
      batchActiveRatio: share(numBatchActive, numBatches),
      ...(profile === undefined ? {} : { profile }),
      ...(state === undefined || cached === undefined
        ? {}
        : { tiers: { numSlots: state.planned.slots, numPasses, waitedMs, ...cached } }),
    };
  }

  async #run(
    executable: Executable,
    chosen: ChosenReader,
    counted: readonly number[],
    tiered: readonly TierState[],
    scalars: Int32Array,
    options: RunOptions,
  ): Promise<void> {
    const cache = this.#cacheOf?.();
    const tokensAt = executable.program.scalars.slots.get('T')?.wordOffset;
    const numTokens = tokensAt === undefined ? 0 : (scalars[tokensAt] as number);
    const onBoundary = async (boundary: string): Promise<void> => {
      const own = parseBoundary(boundary);
      if (own === undefined) await options.onBoundary?.(boundary);
      else await this.#onBoundary(chosen, own.layer, own.pass, numTokens, options.signal);
    };
    try {
      await executable.run(scalars, { ...options, onBoundary });
    } catch (error) {
      cache?.cancelPrefetch();
      throw lossBehind(error) ?? error;
    } finally {
      for (const { index } of tiered) cache?.release(index);
    }
    for (const { planned, count, done } of tiered) {
      invariant(done === count, 'all passes of a layer ran');
      if (planned.kind === 'expert') this.#count(planned.layer, count, numTokens);
    }
    for (const layer of counted) this.#count(layer, await chosen.count(choiceNames.count(layer)), numTokens);
  }

  /** Loads the items of a pass into slots, and prefetches those of the next one. */
  async #onBoundary(
    chosen: ChosenReader,
    layer: number,
    pass: number,
    numTokens: number,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const { now } = this.#parts;
    const cache = this.#cache();
    const state = this.#states.get(layer);
    invariant(state !== undefined, 'boundaries belong to offloaded layers');
    const counts = this.#countsOf(layer);
    if (pass === 0) await this.#choose(chosen, state, numTokens);
    else if (state.done >= state.count && state.isOver) return; // the program already received an empty pass
    if (pass === 0 || state.done < state.count) counts.numPasses++;
    const { index, ids, rows } = state;
    const count = this.#passSize(state);
    const group = ids.subarray(state.done, state.done + count);
    const startMs = now();
    const loaded = cache.ensure(index, group, count, rows, signal);
    counts.waitedMs += now() - startMs;
    if (pass === 0) await this.#prefetchNext(chosen, state, numTokens, signal);
    const waitsFromMs = now();
    await loaded;
    counts.waitedMs += now() - waitsFromMs;
    state.done += count;
    state.isOver = count === 0;
    // prefetch the next pass into the slots that this one leaves
    const numNext = cache.fit(index, ids, state.done, state.count);
    if (numNext > 0) cache.prefetch(index, ids.subarray(state.done), numNext, signal === undefined ? {} : { signal });
    await this.#writeSlots(state, group, count);
  }

  /** Reads the active items of the layer. */
  async #choose(chosen: ChosenReader, state: TierState, numTokens: number): Promise<void> {
    const cache = this.#cache();
    const { planned, index, ids } = state;
    if (index > 0) cache.release(index - 1);
    await chosen.read(state, numTokens);
    state.done = 0;
    state.isOver = false;
    // the order of neurons determines the bits of sums; that of experts does not
    const takesPasses = planned.kind === 'expert' && cache.fit(index, ids, 0, state.count) < state.count;
    if (takesPasses) residentFirst(cache, index, ids, state.count);
  }

  /** Number of items in the next pass: as many as fit, in whole groups of neurons except in the last pass. */
  #passSize({ planned, index, ids, done, count }: TierState): number {
    const numFitting = this.#cache().fit(index, ids, done, count);
    const hasMore = planned.kind === 'neuron' && done + numFitting < count;
    return hasMore ? numFitting - (numFitting % neuronGroup) : numFitting;
  }

  /** Prefetches the items that the next layer will probably need. */
  async #prefetchNext(
    chosen: ChosenReader,
    state: TierState,
    numTokens: number,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const next = this.#parts.tiers?.layers[state.index + 1];
    const nextState = next && this.#states.get(next.layer);
    const numPredicted = nextState === undefined ? 0 : await chosen.readPredicted(state, nextState, numTokens);
    if (numPredicted === 0) return;
    this.#cache().prefetch(state.index + 1, state.predicted, numPredicted, signal === undefined ? {} : { signal });
  }

  /** Writes the slots of the pass's items for the program. */
  async #writeSlots({ planned, map, rows }: TierState, group: Int32Array, count: number): Promise<void> {
    const { layer, kind } = planned;
    if (kind === 'expert') {
      map.fill(-1);
      for (let i = 0; i < count; i++) map[group[i] as number] = rows[i] as number;
      await this.#write(slotNames.map(layer), map);
      return;
    }
    await this.#write(slotNames.ids(layer), group);
    await this.#write(slotNames.rows(layer), rows.subarray(0, count));
    await this.#write(slotNames.count(layer), Int32Array.of(count));
  }

  async #write(name: string, words: Int32Array): Promise<void> {
    const { backend, buffers } = this.#parts;
    const handle = buffers.get(name) as BufferHandle;
    const bytes = new Uint8Array(words.buffer, words.byteOffset, words.byteLength);
    const view = backend.view(handle);
    if (view === undefined) await backend.write(handle, 0, bytes);
    else view.set(bytes);
  }

  #cache(): NeuronCache {
    const cache = this.#cacheOf?.();
    invariant(cache !== undefined, 'offloaded layers have a cache');
    return cache;
  }

  #countsOf(layer: number): LayerCounts {
    const known = this.#counts.get(layer);
    if (known !== undefined) return known;
    const made = { numSteps: 0, numActive: 0, numBatches: 0, numBatchActive: 0, waitedMs: 0, numPasses: 0 };
    this.#counts.set(layer, made);
    return made;
  }

  #count(layer: number, numActive: number, numTokens: number): void {
    const total = this.#countsOf(layer);
    if (numTokens === 1) {
      total.numSteps++;
      total.numActive += numActive;
    } else {
      total.numBatches++;
      total.numBatchActive += numActive;
    }
  }
}

/** Reads the active items of layers, and those predicted for the next layers. */
class ChosenReader {
  readonly #executable: Executable;
  readonly #one = new Int32Array(1);

  constructor(executable: Executable) {
    this.#executable = executable;
  }

  async count(output: string): Promise<number> {
    await this.#executable.read(output, this.#one);
    return this.#one[0] as number;
  }

  /** The active items of the layer, distinct and ascending. */
  async read(state: TierState, numTokens: number): Promise<void> {
    const { planned, ids, map } = state;
    const { layer, kind, numItems } = planned;
    const name = choiceNames.ids(layer);
    if (kind === 'neuron') {
      state.count = await this.count(choiceNames.count(layer));
      await this.#executable.read(name, ids.subarray(0, state.count));
    } else {
      state.count = distinct(await this.#readRows(name, numTokens), map, ids, numItems);
    }
  }

  /** Reads the items predicted for the next layer. Returns how many. */
  async readPredicted({ planned, predicted }: TierState, next: TierState, numTokens: number): Promise<number> {
    const name = choiceNames.predictedIds(planned.layer);
    if (!this.#executable.program.outputs.has(name)) return 0;
    if (planned.kind === 'neuron') {
      const count = await this.count(choiceNames.predictedCount(planned.layer));
      await this.#executable.read(name, predicted.subarray(0, count));
      return count;
    }
    return distinct(await this.#readRows(name, numTokens), next.map, predicted, next.planned.numItems);
  }

  async #readRows(name: string, numTokens: number): Promise<Int32Array> {
    const rows = new Int32Array(numTokens * Number(this.#executable.program.outputs.get(name)?.shape[1]));
    await this.#executable.read(name, rows);
    return rows;
  }
}

type LayerTimes = NonNullable<FeedForwardLayerMetrics['profile']>;

/** Times by layer; empty without a profile. */
function profileOf(executables: readonly Executable[]): Map<number, LayerTimes> {
  const times = new Map<number, LayerTimes>();
  for (const executable of executables) {
    const { records, buffers } = executable.program;
    for (const [index, { layer, op, timeMs }] of executable.profile().entries()) {
      const inputs = Object.values(records[index]?.inputs ?? {});
      const isPredictor = op === 'active-neurons' || inputs.some(({ buffer }) => isTable(buffers[buffer]?.name));
      const { layerMs, predictorMs } = times.get(layer) ?? { layerMs: 0, predictorMs: 0 };
      times.set(layer, { layerMs: layerMs + timeMs, predictorMs: predictorMs + (isPredictor ? timeMs : 0) });
    }
  }
  return times;
}

/** Whether a weight is a table of a predictor (`predictorWeights`). */
function isTable(name: string | undefined): boolean {
  return name?.startsWith('sparse.') === true;
}

/** The distinct values, ascending. @param seen scratch with one value per item */
function distinct(values: Int32Array, seen: Int32Array, target: Int32Array, numItems: number): number {
  seen.fill(0);
  for (const value of values) seen[value] = 1;
  let count = 0;
  for (let item = 0; item < numItems; item++) if (seen[item] === 1) target[count++] = item;
  return count;
}

/** Moves items in slots to the front, both parts ascending, since later passes would evict them. */
function residentFirst(cache: NeuronCache, layer: number, ids: Int32Array, count: number): void {
  const others: number[] = [];
  let numResident = 0;
  for (let i = 0; i < count; i++) {
    const id = ids[i] as number;
    if (cache.tierOf(layer, id) === 'hot') ids[numResident++] = id;
    else others.push(id);
  }
  ids.set(others, numResident);
}
