/** Loads items into their slots, each from the fastest tier that has it. */
import type { Activity } from './activity.js';
import type { ColdCopy, WarmTier } from './copy-tiers.js';
import type { SlotLoads } from './slot-loads.js';

export interface ItemSources {
  readonly loads: SlotLoads;
  readonly slotOf: Int32Array;
  readonly warm: WarmTier;
  /** The 4-bit copy, in place of the sources. */
  readonly cold: ColdCopy | undefined;
  readonly activity: Activity;
  /** Whether items that are read may be kept in the warm tier as well. */
  readonly keepsWarm: boolean;
}

const nothing = (): void => undefined;

/**
 * @param items ascending
 * @returns how many came from the warm tier
 */
export function loadItems(items: Int32Array, sources: ItemSources, isWanted: boolean): number {
  const { loads, slotOf, warm, cold, activity, keepsWarm } = sources;
  const warmItems = items.filter((item) => warm.placeOf(item) >= 0);
  if (warmItems.length > 0) {
    const places = warmItems.map((item) => warm.placeOf(item));
    for (const place of places) {
      warm.touch(place);
      warm.hold(place);
    }
    const slots = warmItems.map((item) => slotOf[item]);
    loads.fill(warm, places, slots, (place) => warm.letGo(place));
  }
  if (warmItems.length === items.length) return warmItems.length;
  const isOfWarm = new Set(warmItems);
  const coldItems = warmItems.length === 0 ? items : items.filter((item) => !isOfWarm.has(item));
  const slots = coldItems.map((item) => slotOf[item]);
  if (cold !== undefined) {
    const places = coldItems.map((item) => cold.placeOf(item));
    loads.fill(cold, places, slots, nothing);
    return warmItems.length;
  }
  const isInSlot = (item: number): boolean => slotOf[item] >= 0;
  const warmPlaces = coldItems.map((item) => (keepsWarm ? warm.admit(item, activity, isInSlot) : -1));
  loads.read(coldItems, slots, warmPlaces, isWanted);
  return warmItems.length;
}
