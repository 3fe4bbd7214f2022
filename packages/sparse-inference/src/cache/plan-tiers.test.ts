/** Properties of plans for random layers and budgets, and plans derived by hand. */
import { ArgumentError, CapacityError, createRng, type Rng } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { planNeuronTiers, type NeuronTierOptions, type PlannedLayer, type PlannedLayerInput } from '../index.js';

function randomLayer(rng: Rng): PlannedLayerInput {
  const numItems = rng.nextInt(60);
  const hotBytes = 1 + rng.nextInt(5000);
  const warmBytes = rng.nextInt(2) === 0 ? hotBytes : 1 + Math.floor(hotBytes * 0.53);
  const coldBytes = rng.nextInt(3) === 0 ? 1 + Math.floor(hotBytes * 0.28) : 0;
  const layer = { numItems, hotBytes, warmBytes, coldBytes };
  const power = 1 + rng.nextInt(8);
  const frequencies = Float32Array.from({ length: numItems }, () => rng.nextFloat() ** power);
  return {
    ...layer,
    ...(rng.nextInt(4) === 0 ? {} : { frequencies }),
    ...(rng.nextInt(3) === 0 ? { leastHot: rng.nextInt(20) } : {}),
    ...(rng.nextInt(3) === 0 ? { workingSlots: 1 + rng.nextInt(12) } : {}),
    ...(rng.nextInt(3) === 0 ? { leastWorkingSlots: rng.nextInt(12) } : {}),
  };
}

function randomOptions(rng: Rng): Omit<NeuronTierOptions, 'budgetBytes'> {
  return {
    layers: Array.from({ length: 1 + rng.nextInt(5) }, () => randomLayer(rng)),
    stagingBytes: rng.nextInt(3000),
    ...(rng.nextInt(3) === 0 ? { hotFrequency: 0.3 + rng.nextFloat() } : {}),
  };
}

const smallestOf = (options: Omit<NeuronTierOptions, 'budgetBytes'>): number => {
  try {
    return planNeuronTiers({ ...options, budgetBytes: 0 }).smallestBudgetBytes;
  } catch (error) {
    expect(error).toBeInstanceOf(CapacityError);
    return (error as CapacityError).needed;
  }
};

/** Checks one layer of a plan. @returns whether only a part of its items has slots */
function checkLayer(
  { slots, hot, warmSlots, warm }: PlannedLayer,
  { numItems, frequencies, leastHot = 0, workingSlots }: PlannedLayerInput,
  hotFrequency: number,
): boolean {
  expect(slots).toBeLessThanOrEqual(numItems);
  expect(hot.length).toBeLessThanOrEqual(slots);
  expect(hot.length).toBeGreaterThanOrEqual(Math.min(leastHot, numItems));
  if (hot.length < numItems) expect(slots).toBeGreaterThan(hot.length);
  expect(warm.length).toBeLessThanOrEqual(warmSlots);
  expect(new Set([...hot, ...warm]).size).toBe(hot.length + warm.length);
  for (const list of [hot, warm]) expect([...list]).toEqual([...list].sort((a, b) => a - b));
  const isPartial = slots < numItems;
  if (isPartial && workingSlots !== undefined) expect(slots - hot.length).toBeGreaterThanOrEqual(workingSlots);
  if (frequencies !== undefined) checkOrder(hot, warm, frequencies, hotFrequency);
  return isPartial;
}

/** No item of a lower tier is active more often than one of a higher tier. */
function checkOrder(hot: Int32Array, warm: Int32Array, frequencies: ArrayLike<number>, hotFrequency: number): void {
  const tierOf = new Int8Array(frequencies.length).fill(2);
  for (const item of warm) tierOf[item] = 1;
  for (const item of hot) tierOf[item] = 0;
  const order = Array.from(tierOf.keys()).sort((a, b) => frequencies[b] - frequencies[a]);
  const misplaced = order.filter((item, at) => {
    if (frequencies[item] >= hotFrequency && tierOf[item] !== 0) return true;
    const before = order[at - 1] ?? item;
    return frequencies[item] !== frequencies[before] && tierOf[item] < tierOf[before];
  });
  expect(misplaced).toEqual([]);
}

describe('random plans', () => {
  it('respect the budget, pin the most frequently active items, and use the whole budget', () => {
    const rng = createRng(7);
    let numPartial = 0;
    for (let run = 0; run < 400; run++) {
      const options = randomOptions(rng);
      const smallest = smallestOf(options);
      const all = options.layers.reduce((sum, { numItems, hotBytes }) => sum + numItems * hotBytes, 0);
      const budgetBytes = smallest + rng.nextInt(Math.ceil(all * 1.5) + 1);
      const plan = planNeuronTiers({ ...options, budgetBytes });
      expect(plan.smallestBudgetBytes).toBe(smallest);
      expect(plan.totalBytes).toBeLessThanOrEqual(budgetBytes);
      const { hotBytes, warmBytes, coldBytes, stagingBytes, bookkeepingBytes } = plan;
      expect(plan.totalBytes).toBe(hotBytes + warmBytes + coldBytes + stagingBytes + bookkeepingBytes);
      expect(plan.layers.reduce((sum, { slots }, i) => sum + slots * options.layers[i].hotBytes, 0)).toBe(hotBytes);
      const { hotFrequency = Infinity } = options;
      const partial = plan.layers.filter((layer, index) => checkLayer(layer, options.layers[index], hotFrequency));
      if (partial.length > 0) numPartial++;
    }
    expect(numPartial).toBeGreaterThan(100);
  });

  it('fail below the smallest budget and work at it', () => {
    const rng = createRng(8);
    for (let run = 0; run < 200; run++) {
      const options = randomOptions(rng);
      const smallest = smallestOf(options);
      expect(planNeuronTiers({ ...options, budgetBytes: smallest }).totalBytes).toBeLessThanOrEqual(smallest);
      if (smallest > 0) {
        const tooSmall = (): unknown => planNeuronTiers({ ...options, budgetBytes: smallest - 1 });
        expect(tooSmall).toThrow(CapacityError);
        expect(tooSmall).toThrow(String(smallest));
      }
    }
  });

  it('save no less with a larger budget, except for the saving of one item', () => {
    const rng = createRng(9);
    for (let run = 0; run < 100; run++) {
      const layers = [randomLayer(rng)];
      const [{ numItems, frequencies = new Float32Array(numItems), hotBytes }] = layers;
      const options = { layers, stagingBytes: 0 };
      const smallest = smallestOf(options);
      let before = 0;
      for (let step = 0; step < 10; step++) {
        const plan = planNeuronTiers({ ...options, budgetBytes: smallest + step * hotBytes * 4 });
        const [{ hot, warm }] = plan.layers;
        // a copy from the warm tier costs a tenth of a read
        let saved = 0;
        for (const item of hot) saved += frequencies[item];
        for (const item of warm) saved += frequencies[item] * 0.9;
        expect(saved).toBeGreaterThan(before - 1);
        before = Math.max(before, saved);
      }
    }
  });
});

const half = Float32Array.from({ length: 100 }, (_, item) => (item < 10 ? 1 : item < 60 ? 0.2 : 0));
const layer = { numItems: 100, hotBytes: 1000, warmBytes: 1000, coldBytes: 0, frequencies: half };

describe('planNeuronTiers', () => {
  it('makes every item hot when there is room', () => {
    const plan = planNeuronTiers({ budgetBytes: 1e6, layers: [layer, layer], stagingBytes: 0 });
    for (const { slots, hot, warmSlots } of plan.layers) {
      expect([slots, hot.length, warmSlots]).toEqual([100, 100, 0]);
    }
    expect(plan.hotBytes).toBe(200_000);
  });

  it('has slots for the items that are always active and for the average of the others', () => {
    // 10 items always, 50 of which 10 are active on average, and a quarter more: 10 + 13 slots
    const smallest = smallestOf({ layers: [layer], stagingBytes: 0 });
    const plan = planNeuronTiers({ budgetBytes: smallest, layers: [layer], stagingBytes: 0 });
    expect(plan.layers[0].slots).toBe(23);
    expect([...plan.layers[0].hot]).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    expect(plan.hotBytes).toBe(23_000);
  });

  it('prefers 8-bit copies to slots where rows are wide', () => {
    const wide = { ...layer, warmBytes: 531 };
    const smallest = smallestOf({ layers: [wide], stagingBytes: 0 });
    const plan = planNeuronTiers({ budgetBytes: smallest + 50 * 560, layers: [wide], stagingBytes: 0 });
    const [{ hot, warm }] = plan.layers;
    expect(hot.length + warm.length).toBe(60);
    expect(warm.length).toBeGreaterThan(45);
  });

  it('puts items beyond the limit of backend memory into the warm tier', () => {
    const options = { layers: [layer], stagingBytes: 0, hotLimitBytes: 40_000, budgetBytes: 80_000 };
    const plan = planNeuronTiers(options);
    expect(plan.hotBytes).toBeLessThanOrEqual(40_000);
    expect(plan.layers[0].warmSlots).toBeGreaterThan(30);
    const tooSmall = { ...options, hotLimitBytes: 22_999 };
    expect(() => planNeuronTiers(tooSmall)).toThrow(/slots: needed 23000 bytes, available 22999/);
  });
});

describe('working slots', () => {
  it('go to items of unknown frequency', () => {
    const { frequencies: _, ...unknown } = layer;
    const plan = planNeuronTiers({ budgetBytes: 60_000, layers: [unknown], stagingBytes: 0 });
    const [{ slots, hot }] = plan.layers;
    expect(hot.length).toBe(0);
    expect(slots).toBeGreaterThan(50);
  });

  it('are never fewer than leastWorkingSlots', () => {
    const plan = planNeuronTiers({
      budgetBytes: 60_000,
      layers: [{ ...layer, leastWorkingSlots: 30 }],
      stagingBytes: 0,
    });
    const [{ slots, hot }] = plan.layers;
    expect(slots - hot.length).toBeGreaterThanOrEqual(30);
  });
});

describe('invalid numbers', () => {
  it('are rejected', () => {
    const plan = (changes: Partial<PlannedLayerInput>, budgetBytes = 1e6): unknown =>
      planNeuronTiers({ budgetBytes, layers: [{ ...layer, ...changes }] });
    expect(() => plan({ hotBytes: -1 })).toThrow(ArgumentError);
    expect(() => plan({ numItems: 99 })).toThrow(ArgumentError);
    expect(() => plan({ frequencies: new Float32Array(100).fill(1.5) })).toThrow('from 0 to 1');
    expect(() => plan({ workingSlots: 0.5 })).toThrow(ArgumentError);
    expect(() => plan({}, Number.NaN)).toThrow(ArgumentError);
  });
});
