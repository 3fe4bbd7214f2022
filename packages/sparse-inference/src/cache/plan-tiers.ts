/**
 * Divides one byte budget among the tiers of all layers, greedily: each byte goes where it saves most. Items are ranked
 * by how often they are active; in each layer the first are hot (pinned), the next ones warm, the rest cold. Besides
 * pinned slots a layer has working slots for the other active items.
 */
import { ArgumentError, CapacityError, checkOptions, type OptionNames } from '@winnow/tensor';
import { ColdCopy } from './copy-tiers.js';
import { LayerTiers } from './layer/tiers.js';
import { neuronStagingBytes } from './staging.js';

export interface PlannedLayerInput {
  readonly numItems: number;
  /** Bytes of one item in each tier (see `neuronItemBytes`); `coldBytes` is 0 if the cold tier is the file. */
  readonly hotBytes: number;
  readonly warmBytes: number;
  readonly coldBytes: number;
  /** Share of the tokens for which each item is active. Default: unknown; then no item is preferred. */
  readonly frequencies?: ArrayLike<number>;
  /** Minimum number of hot items, the most frequently active ones. Default 0. */
  readonly leastHot?: number;
  /** Slots for items that are not pinned. Default: 1.25 times the average number of active items. */
  readonly workingSlots?: number;
  /** Minimum of that default. Default 1. */
  readonly leastWorkingSlots?: number;
}

export interface NeuronTierOptions {
  readonly budgetBytes: number;
  readonly layers: readonly PlannedLayerInput[];
  /** Items that are active at least this often are always hot. Default: none. */
  readonly hotFrequency?: number;
  /** Maximum size of all slots, if backend memory is only part of the budget. Default: the budget. */
  readonly hotLimitBytes?: number;
  /** Cost of loading an item from the cold tier, relative to a copy from the warm tier. Default 10. */
  readonly coldCost?: number;
  /** Memory of read buffers. Default: that of a cache with default options for items of these sizes. */
  readonly stagingBytes?: number;
}

const neuronTierNames: OptionNames<NeuronTierOptions> = {
  budgetBytes: true,
  layers: true,
  hotFrequency: true,
  hotLimitBytes: true,
  coldCost: true,
  stagingBytes: true,
};

export interface PlannedLayer {
  readonly slots: number;
  /** Pinned items, ascending. */
  readonly hot: Int32Array;
  readonly warmSlots: number;
  /** Initial items of the warm tier, ascending. */
  readonly warm: Int32Array;
}

export interface NeuronTierPlan {
  readonly layers: readonly PlannedLayer[];
  /** Bytes of all slots, pinned and working. */
  readonly hotBytes: number;
  readonly warmBytes: number;
  /** Bytes of the copy in memory, 0 if the cold tier is the file. */
  readonly coldBytes: number;
  readonly stagingBytes: number;
  readonly bookkeepingBytes: number;
  /** The sum; at most the budget. */
  readonly totalBytes: number;
  /** The smallest budget for which there is a plan. */
  readonly smallestBudgetBytes: number;
}

/** Room for tokens that need more than the average. */
const workingMargin = 1.25;
/** A disk of 1 GB/s compared with memory of 10 GB/s, plus the cost of calls. */
const defaultColdCost = 10;
const warmCost = 1;

/** A layer while the budget is being divided: items by descending frequency, the first ones hot, then warm. */
class Division {
  readonly numItems: number;
  readonly order: Int32Array;
  readonly #frequencies: Float64Array; // in the same order
  readonly #rest: Float64Array; // [numItems + 1] sum of the frequencies from here on
  readonly #input: PlannedLayerInput;
  readonly #coldCost: number;
  numHot = 0;
  /** Items that are hot or warm. */
  numNear = 0;
  extraSlots = 0;
  extraWarm = 0;

  constructor(input: PlannedLayerInput, hotFrequency: number, coldCost: number) {
    const { numItems, frequencies, leastHot = 0 } = input;
    this.#input = input;
    this.#coldCost = coldCost;
    this.numItems = numItems;
    const frequencyOf = (item: number): number => frequencies?.[item] ?? 0;
    this.order = Int32Array.from({ length: numItems }, (_, item) => item);
    if (frequencies !== undefined) this.order.sort((a, b) => frequencyOf(b) - frequencyOf(a) || a - b);
    this.#frequencies = Float64Array.from(this.order, frequencyOf);
    this.#rest = new Float64Array(numItems + 1);
    for (let at = numItems - 1; at >= 0; at--) this.#rest[at] = this.#rest[at + 1] + this.#frequencies[at];
    // pinning an item that frees more of the working slots than its own slot takes has a negative cost
    const pays = input.workingSlots === undefined ? 1 / workingMargin : Infinity;
    const least = Math.min(hotFrequency, pays);
    while (this.numHot < numItems && (this.numHot < leastHot || this.#frequencies[this.numHot] >= least)) this.numHot++;
    this.numNear = this.numHot;
  }

  /** Whether the cold tier is a copy in memory. */
  get hasCopy(): boolean {
    return this.#input.coldBytes > 0;
  }

  slots(numHot = this.numHot): number {
    const { workingSlots, leastWorkingSlots = 1 } = this.#input;
    const working = workingSlots ?? Math.max(leastWorkingSlots, Math.ceil(this.#rest[numHot] * workingMargin));
    return Math.min(this.numItems, numHot + Math.max(1, working) + this.extraSlots);
  }

  get isWhole(): boolean {
    return this.slots() === this.numItems;
  }

  slotBytes(numHot = this.numHot): number {
    return this.slots(numHot) * this.#input.hotBytes;
  }

  get numWarm(): number {
    return this.isWhole ? 0 : this.numNear - this.numHot;
  }

  warmSlots(numHot = this.numHot, numNear = this.numNear): number {
    if (this.slots(numHot) === this.numItems) return 0;
    return Math.min(this.numItems - numHot, numNear - numHot + this.extraWarm);
  }

  warmBytes(): number {
    return this.warmSlots() * this.#input.warmBytes;
  }

  coldBytes(numHot = this.numHot, numNear = this.numNear): number {
    return this.slots(numHot) === this.numItems ? 0 : (this.numItems - numNear) * this.#input.coldBytes;
  }

  bookkeepingBytes(numHot = this.numHot, numNear = this.numNear): number {
    const ofCopy = this.hasCopy ? ColdCopy.itemBytes * this.numItems : 0;
    return ofCopy + LayerTiers.bookkeepingBytes(this.numItems, this.slots(numHot), this.warmSlots(numHot, numNear));
  }

  bytes(numHot = this.numHot, numNear = this.numNear): number {
    return (
      this.slotBytes(numHot) +
      this.warmSlots(numHot, numNear) * this.#input.warmBytes +
      this.coldBytes(numHot, numNear) +
      this.bookkeepingBytes(numHot, numNear)
    );
  }

  /** Savings per byte of making the next item hot; 0 if no requested item is left. */
  hotGain(): number {
    if (this.numHot >= this.numItems) return 0;
    const { hotBytes, warmBytes, coldBytes, workingSlots } = this.#input;
    const frequency = this.#frequencies[this.numHot];
    const isWarm = this.numHot < this.numNear;
    const saved = frequency * (isWarm ? warmCost : this.#coldCost);
    const ofWorking = workingSlots === undefined ? workingMargin * frequency : 0;
    const bytes = (1 - ofWorking) * hotBytes - (isWarm ? warmBytes : coldBytes);
    return saved === 0 ? 0 : saved / Math.max(bytes, 1);
  }

  /** Savings per byte of making the next item warm. */
  warmGain(): number {
    const { hotBytes, warmBytes, coldBytes } = this.#input;
    // a copy as large as the item has no advantage over a slot
    if (this.numNear >= this.numItems || warmBytes >= hotBytes) return 0;
    const saved = this.#frequencies[this.numNear] * (this.#coldCost - warmCost);
    return saved === 0 ? 0 : saved / Math.max(warmBytes - coldBytes, 1);
  }
}

/**
 * Plans slots, hot and warm items per layer. Spread a planned layer into a `NeuronLayer`.
 * @throws {CapacityError} when the budget is too small for the hot items and the working slots; `needed` is the
 *   smallest that works
 * @throws {ArgumentError} when a size or a frequency is invalid
 */
export function planNeuronTiers(options: NeuronTierOptions): NeuronTierPlan {
  checkOptions(options, neuronTierNames);
  const { budgetBytes, layers, hotFrequency = Infinity, coldCost = defaultColdCost } = options;
  for (const [index, layer] of layers.entries()) checkLayer(layer, index);
  checkBytes('budgetBytes', budgetBytes);
  if (!(coldCost >= warmCost)) {
    throw new ArgumentError({ argument: 'coldCost', expected: `${warmCost} or more`, actual: String(coldCost) });
  }
  const largest = layers.reduce((most, { hotBytes }) => Math.max(most, hotBytes), 0);
  const stagingBytes = options.stagingBytes ?? neuronStagingBytes(largest);
  checkBytes('stagingBytes', stagingBytes);
  const hotLimitBytes = options.hotLimitBytes ?? budgetBytes;
  const divisions = layers.map((layer) => new Division(layer, hotFrequency, coldCost));
  const sum = (bytesOf: (division: Division) => number): number =>
    divisions.reduce((total, division) => total + bytesOf(division), 0);
  const smallestBudgetBytes = stagingBytes + sum((division) => division.bytes());
  const smallestHotBytes = sum((division) => division.slotBytes());
  if (smallestBudgetBytes > budgetBytes) throw tooSmall('budget', smallestBudgetBytes, budgetBytes);
  if (smallestHotBytes > hotLimitBytes) throw tooSmall('slots', smallestHotBytes, hotLimitBytes);
  divide(divisions, budgetBytes - smallestBudgetBytes, hotLimitBytes - smallestHotBytes);
  const hotBytes = sum((division) => division.slotBytes());
  const warmBytes = sum((division) => division.warmBytes());
  const coldBytes = sum((division) => division.coldBytes());
  const bookkeepingBytes = sum((division) => division.bookkeepingBytes());
  return {
    layers: divisions.map((division): PlannedLayer => {
      const { order, numHot, numWarm, numItems, isWhole } = division;
      return {
        slots: division.slots(),
        hot: order.slice(0, isWhole ? numItems : numHot).sort(),
        warmSlots: division.warmSlots(),
        warm: order.slice(numHot, numHot + numWarm).sort(),
      };
    }),
    hotBytes,
    warmBytes,
    coldBytes,
    stagingBytes,
    bookkeepingBytes,
    totalBytes: hotBytes + warmBytes + coldBytes + stagingBytes + bookkeepingBytes,
    smallestBudgetBytes,
  };
}

/** Spends bytes on the step that saves most until none is left, then on unpinned slots. */
function divide(divisions: readonly Division[], budgetBytes: number, hotBudgetBytes: number): void {
  let rest = budgetBytes;
  let hotRest = hotBudgetBytes;
  const isHotOver = new Uint8Array(divisions.length);
  const isWarmOver = new Uint8Array(divisions.length);
  for (;;) {
    let best = -1;
    let isHotBest = false;
    let bestGain = 0;
    for (const [index, division] of divisions.entries()) {
      const hotGain = isHotOver[index] === 1 ? 0 : division.hotGain();
      const warmGain = isWarmOver[index] === 1 || division.isWhole ? 0 : division.warmGain();
      const gain = Math.max(hotGain, warmGain);
      if (gain <= bestGain) continue;
      best = index;
      bestGain = gain;
      isHotBest = hotGain >= warmGain;
    }
    if (best < 0) break;
    const division = divisions[best];
    const numHot = division.numHot + (isHotBest ? 1 : 0);
    const numNear = Math.max(numHot, division.numNear + (isHotBest ? 0 : 1));
    const bytes = division.bytes(numHot, numNear) - division.bytes();
    const slotBytes = division.slotBytes(numHot) - division.slotBytes();
    if (bytes > rest || slotBytes > hotRest) {
      (isHotBest ? isHotOver : isWarmOver)[best] = 1;
      continue;
    }
    rest -= bytes;
    hotRest -= slotBytes;
    division.numHot = numHot;
    division.numNear = numNear;
  }
  for (const kind of ['slots', 'warm'] as const) {
    for (const [index, division] of divisions.entries()) {
      // the rest is shared evenly among the remaining layers
      const share = Math.floor(rest / (divisions.length - index));
      const hotShare = kind === 'slots' ? Math.floor(hotRest / (divisions.length - index)) : 0;
      const before = division.bytes();
      const slotsBefore = division.slotBytes();
      addExtra(division, kind, share, hotShare);
      rest -= division.bytes() - before;
      hotRest -= division.slotBytes() - slotsBefore;
    }
  }
}

/** Adds as many extra places to a layer as its share pays for. */
function addExtra(division: Division, kind: 'slots' | 'warm', share: number, hotShare: number): void {
  if (kind === 'warm' && division.hasCopy) return; // with a 4-bit copy, the warm tier takes only the items of its list
  const field = kind === 'slots' ? 'extraSlots' : 'extraWarm';
  const bytes = division.bytes();
  const slotBytes = division.slotBytes();
  let least = 0;
  let most = division.numItems;
  while (least < most) {
    const middle = Math.ceil((least + most) / 2);
    division[field] = middle;
    const fits = division.bytes() - bytes <= share && (kind === 'warm' || division.slotBytes() - slotBytes <= hotShare);
    if (fits) least = middle;
    else most = middle - 1;
  }
  division[field] = least;
}

function tooSmall(what: string, needed: number, available: number): CapacityError {
  const resource = `neuron cache: ${what}`;
  const hint = 'the minimum for the hot set, the working slots and their bookkeeping';
  return new CapacityError({ resource, needed, available, unit: 'bytes', hint });
}

function checkLayer(layer: PlannedLayerInput, index: number): void {
  const { numItems, hotBytes, warmBytes, coldBytes, frequencies, leastHot, workingSlots, leastWorkingSlots } = layer;
  const name = `layers[${index}]`;
  checkBytes(`${name}.numItems`, numItems);
  checkBytes(`${name}.hotBytes`, hotBytes);
  checkBytes(`${name}.warmBytes`, warmBytes);
  checkBytes(`${name}.coldBytes`, coldBytes);
  if (leastHot !== undefined) checkBytes(`${name}.leastHot`, leastHot);
  if (workingSlots !== undefined) checkBytes(`${name}.workingSlots`, workingSlots);
  if (leastWorkingSlots !== undefined) checkBytes(`${name}.leastWorkingSlots`, leastWorkingSlots);
  if (frequencies === undefined) return;
  const argument = `${name}.frequencies`;
  if (frequencies.length !== numItems) {
    throw new ArgumentError({ argument, expected: String(numItems), actual: String(frequencies.length) });
  }
  for (let item = 0; item < numItems; item++) {
    if (frequencies[item] >= 0 && frequencies[item] <= 1) continue;
    throw new ArgumentError({ argument, expected: 'from 0 to 1', actual: `${frequencies[item]} at ${item}` });
  }
}

function checkBytes(argument: string, value: number): void {
  if (Number.isSafeInteger(value) && value >= 0) return;
  throw new ArgumentError({ argument, expected: 'an integer from 0 on', actual: String(value) });
}
