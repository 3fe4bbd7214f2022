/**
 * Runs programs whose experts or neurons are in tiers: at each layer's boundary what was chosen is brought into slots,
 * while what the next layer will probably choose is read ahead. Also counts what programs that skip neurons compute.
 */
import { neuronGroup, type Backend, type BufferHandle, type Executable, type RunOptions } from '@winnow/ops';
import type { NeuronCache } from '@winnow/sparse-inference';
import { invariant } from '@winnow/tensor';
import type { FeedForwardMetrics, FeedForwardLayerMetrics } from '../metrics/feed-forward.js';
import type { BusyTime } from '../metrics/busy-time.js';
import { choiceNames, parseBoundary, slotNames } from './program.js';
import type { PlannedTierLayer, WeightTierPlan } from './plan.js';

export interface WeightTiersOptions {
  readonly backend: Backend;
  readonly buffers: ReadonlyMap<string, BufferHandle>;
  readonly tiers: WeightTierPlan | undefined;
  /** Present with tiers. */
  readonly cache: NeuronCache | undefined;
  /** How long reads were under way. */
  readonly reads: BusyTime;
  /** Neurons of the layers that skip some. */
  readonly ffnDims: ReadonlyMap<number, number>;
  readonly now: () => number;
}

export interface WeightTiers {
  /** The same program, which gets what it needs while it runs. */
  wrap(executable: Executable): Executable;
  metrics(): FeedForwardMetrics;
}

interface LayerCounts {
  numSteps: number;
  numActive: number;
  numBatches: number;
  numBatchActive: number;
  waitedMs: number;
  numPasses: number;
}

/** A layer in tiers while a step runs. */
interface TierState {
  readonly planned: PlannedTierLayer;
  /** In the cache. */
  readonly index: number;
  readonly map: Int32Array; // [X], experts
  readonly ids: Int32Array; // what was chosen, ascending; experts in slots first when it takes several passes
  readonly rows: Int32Array;
  readonly guess: Int32Array;
  count: number;
  /** How many of the ids have been brought in. */
  done: number;
  /** A pass without items has been told to the program. */
  isOver: boolean;
}

export function createWeightTiers(options: WeightTiersOptions): WeightTiers {
  const { backend, buffers, tiers, cache, ffnDims, now, reads } = options;
  const counts = new Map<number, LayerCounts>();
  const states = new Map<number, TierState>();
  const wrapped: Executable[] = [];
  const countsOf = (layer: number): LayerCounts => {
    const known = counts.get(layer);
    if (known !== undefined) return known;
    const made = { numSteps: 0, numActive: 0, numBatches: 0, numBatchActive: 0, waitedMs: 0, numPasses: 0 };
    counts.set(layer, made);
    return made;
  };
  for (const [index, planned] of (tiers?.layers ?? []).entries()) {
    const { numItems } = planned;
    const [map, ids, rows] = [new Int32Array(numItems), new Int32Array(numItems), new Int32Array(numItems)];
    const next = tiers?.layers[index + 1];
    const guess = new Int32Array(next?.numItems ?? 0);
    states.set(planned.layer, { planned, index, map, ids, rows, guess, count: 0, done: 0, isOver: false });
  }

  async function write(name: string, words: Int32Array): Promise<void> {
    const handle = buffers.get(name) as BufferHandle;
    const bytes = new Uint8Array(words.buffer, words.byteOffset, words.byteLength);
    const view = backend.view(handle);
    if (view === undefined) await backend.write(handle, 0, bytes);
    else view.set(bytes);
  }

  function wrap(executable: Executable): Executable {
    const { program } = executable;
    const tokensAt = program.scalars.slots.get('T')?.wordOffset;
    const counted = [...ffnDims.keys()].filter((layer) => program.outputs.has(choiceNames.count(layer)));
    const tiered = [...states.values()].filter(({ planned }) => program.outputs.has(choiceNames.ids(planned.layer)));
    if (counted.length === 0 && tiered.length === 0) return executable;
    wrapped.push(executable);
    const one = new Int32Array(1);

    async function readCount(output: string): Promise<number> {
      await executable.read(output, one);
      return one[0] as number;
    }

    /** What the layer chose, ascending, each item once. */
    async function readChosen(state: TierState, numTokens: number): Promise<void> {
      const { planned, ids, map } = state;
      const { layer, kind, numItems } = planned;
      if (kind === 'neuron') {
        state.count = await readCount(choiceNames.count(layer));
        await executable.read(choiceNames.ids(layer), ids.subarray(0, state.count));
      } else {
        const chosen = new Int32Array(numTokens * widthOf(choiceNames.ids(layer)));
        await executable.read(choiceNames.ids(layer), chosen);
        state.count = distinct(chosen, map, ids, numItems);
      }
    }

    const widthOf = (output: string): number => Number(program.outputs.get(output)?.shape[1]);

    /** What the next layer will probably choose. Returns how many. */
    async function readGuess({ planned, guess }: TierState, next: TierState, numTokens: number): Promise<number> {
      const name = choiceNames.guessIds(planned.layer);
      if (!program.outputs.has(name)) return 0;
      if (planned.kind === 'neuron') {
        const count = await readCount(choiceNames.guessCount(planned.layer));
        await executable.read(name, guess.subarray(0, count));
        return count;
      }
      const chosen = new Int32Array(numTokens * widthOf(name));
      await executable.read(name, chosen);
      return distinct(chosen, next.map, guess, next.planned.numItems);
    }

    async function onBoundary(layer: number, pass: number, numTokens: number, signal: AbortSignal | undefined) {
      const state = states.get(layer);
      invariant(state !== undefined && cache !== undefined, 'boundaries belong to layers in tiers');
      const { planned, index, ids, rows, map } = state;
      const withSignal = signal === undefined ? {} : { signal };
      if (pass === 0) {
        const before = tiers?.layers[index - 1];
        if (before !== undefined) cache.release(index - 1);
        await readChosen(state, numTokens);
        state.done = 0;
        state.isOver = false;
        // sums over neurons keep their order; those of experts have none
        const isOver = planned.kind === 'expert' && cache.fit(index, ids, 0, state.count) < state.count;
        if (isOver) residentFirst(cache, index, ids, state.count);
        countsOf(layer).numPasses++;
      } else if (state.done < state.count) countsOf(layer).numPasses++;
      else if (state.isOver) return; // nothing is left, and the program knows
      const begin = state.done;
      let count = cache.fit(index, ids, begin, state.count);
      if (planned.kind === 'neuron' && begin + count < state.count) count -= count % neuronGroup;
      const group = ids.subarray(begin, begin + count);
      const start = now();
      const loaded = cache.ensure(index, group, count, rows, signal);
      let waitedMs = now() - start;
      if (pass === 0) {
        const next = tiers?.layers[index + 1];
        const nextState = next && states.get(next.layer);
        const numGuessed = nextState === undefined ? 0 : await readGuess(state, nextState, numTokens);
        if (numGuessed > 0) {
          const { guess } = state;
          cache.prefetch(index + 1, guess, numGuessed, withSignal);
        }
      }
      const waitsFrom = now();
      await loaded;
      waitedMs += now() - waitsFrom;
      countsOf(layer).waitedMs += waitedMs;
      state.done += count;
      state.isOver = count === 0;
      // the next pass, as far as this one leaves slots
      const numNext = cache.fit(index, ids, state.done, state.count);
      if (numNext > 0) cache.prefetch(index, ids.subarray(state.done), numNext, withSignal);
      if (planned.kind === 'expert') {
        map.fill(-1);
        for (let i = 0; i < count; i++) map[group[i] as number] = rows[i] as number;
        await write(slotNames.map(layer), map);
      } else {
        await write(slotNames.ids(layer), group);
        await write(slotNames.rows(layer), rows.subarray(0, count));
        one[0] = count;
        await write(slotNames.count(layer), one);
      }
    }

    function note(layer: number, numActive: number, numTokens: number): void {
      const total = countsOf(layer);
      if (numTokens === 1) {
        total.numSteps++;
        total.numActive += numActive;
      } else {
        total.numBatches++;
        total.numBatchActive += numActive;
      }
    }

    async function run(scalars: Int32Array, runOptions: RunOptions = {}): Promise<void> {
      const numTokens = tokensAt === undefined ? 0 : (scalars[tokensAt] as number);
      const { signal } = runOptions;
      try {
        await executable.run(scalars, {
          ...runOptions,
          async onBoundary(boundary) {
            const own = parseBoundary(boundary);
            if (own === undefined) await runOptions.onBoundary?.(boundary);
            else await onBoundary(own.layer, own.pass, numTokens, signal);
          },
        });
      } catch (error) {
        cache?.cancelPrefetch();
        throw error;
      } finally {
        for (const { index } of tiered) cache?.release(index);
      }
      for (const { planned, count } of tiered) {
        invariant(states.get(planned.layer)?.done === count, 'all passes of a layer ran');
        if (planned.kind === 'expert') note(planned.layer, count, numTokens);
      }
      for (const layer of counted) note(layer, await readCount(choiceNames.count(layer)), numTokens);
    }

    return {
      program,
      fallbacks: executable.fallbacks,
      run,
      read: (output, target) => executable.read(output, target),
      profile: () => executable.profile(),
      dispose: () => executable.dispose(),
    };
  }

  return {
    wrap,
    metrics(): FeedForwardMetrics {
      const layers = [...counts].toSorted(([a], [b]) => a - b);
      const times = profileOf(wrapped);
      const numItemsOf = (layer: number): number => ffnDims.get(layer) ?? states.get(layer)?.planned.numItems ?? 0;
      return {
        layers: layers.map(([layer, total]): FeedForwardLayerMetrics => {
          const share = (active: number, steps: number): number =>
            steps === 0 ? 0 : active / steps / numItemsOf(layer);
          const { numSteps, numActive, numBatches, numBatchActive, numPasses, waitedMs } = total;
          const activeRatio = share(numActive, numSteps);
          const batchActiveRatio = share(numBatchActive, numBatches);
          const state = states.get(layer);
          const cached = state && cache?.statistics().layers[state.index];
          return {
            layer,
            numItems: numItemsOf(layer),
            numSteps,
            activeRatio,
            numBatches,
            batchActiveRatio,
            ...(times.has(layer) ? { profile: times.get(layer) as LayerTimes } : {}),
            ...(state === undefined || cached === undefined
              ? {}
              : { tiers: { numSlots: state.planned.slots, numPasses, waitedMs, ...cached } }),
          };
        }),
        ...(cache === undefined
          ? {}
          : {
              cache: cache.statistics(),
              waitedMs: [...counts.values()].reduce((sum, { waitedMs }) => sum + waitedMs, 0),
              readMs: reads.busyMs(),
            }),
      };
    },
  };
}

type LayerTimes = NonNullable<FeedForwardLayerMetrics['profile']>;

/** Times by layer; none unless they were measured. */
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

/** Tables of predictors, which are named by `predictorWeights`. */
function isTable(name: string | undefined): boolean {
  return name?.startsWith('sparse.') === true;
}

/** The distinct values, ascending. @param seen scratch of as many values as there are items */
function distinct(values: Int32Array, seen: Int32Array, target: Int32Array, numItems: number): number {
  seen.fill(0);
  for (const value of values) seen[value] = 1;
  let count = 0;
  for (let item = 0; item < numItems; item++) if (seen[item] === 1) target[count++] = item;
  return count;
}

/** Moves what has a slot to the front, both parts ascending: it would be gone when its turn comes. */
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
