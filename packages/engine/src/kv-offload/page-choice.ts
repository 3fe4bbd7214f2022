/**
 * Which pages a query attends to, chosen on the host by the rule of `page-topk-attention` from what is known of each page
 * without reading it: the box of its keys.
 */
import type { SequenceView } from '@winnow/kv-cache';
import { BoxBounds, missingShare } from '@winnow/ops';
import { largestIndices, type PageTopKPolicy } from '@winnow/sparse-attention';

/** The pages of a sequence, of a part of a block each, in the order of their positions. */
export interface PageList {
  readonly count: number;
  /** Block of the pool, or -1 for a page outside it, and its id then. */
  readonly blocks: Int32Array;
  readonly pageIds: Int32Array;
  /** Which part of the block. */
  readonly parts: Int32Array;
  /** Positions of the slots, -1 for empty ones. */
  readonly positions: readonly Int32Array[];
  /** Slots that the query sees, and whether the page is attended to whatever its keys are. */
  readonly numSeen: Int32Array;
  readonly isFixed: Uint8Array;
}

/** @param window of the layer, 0 for none */
export function listPages(
  view: SequenceView,
  blockSize: number,
  queryPosition: number,
  window: number,
  { pageSize, sinks, window: local }: PageTopKPolicy,
): PageList {
  const numParts = blockSize / pageSize;
  const whole: { readonly first: number; readonly block: number; readonly pageId: number; readonly own: Int32Array }[] =
    [];
  const firstOf = (own: Int32Array): number => own.find((position) => position >= 0) ?? Infinity;
  for (const [index, block] of view.blocks.entries()) {
    const own = view.positions.subarray(index * blockSize, (index + 1) * blockSize);
    whole.push({ first: firstOf(own), block, pageId: -1, own });
  }
  for (const { pageId, positions } of view.detachedPages) {
    whole.push({ first: firstOf(positions), block: -1, pageId, own: positions });
  }
  whole.sort((a, b) => a.first - b.first);
  const count = whole.length * numParts;
  const blocks = new Int32Array(count);
  const pageIds = new Int32Array(count);
  const parts = new Int32Array(count);
  const numSeen = new Int32Array(count);
  const isFixed = new Uint8Array(count);
  const positions: Int32Array[] = [];
  const reach = window === 0 ? Infinity : window;
  let page = 0;
  for (const { block, pageId, own } of whole) {
    for (let part = 0; part < numParts; part++, page++) {
      blocks[page] = block;
      pageIds[page] = pageId;
      parts[page] = part;
      const slots = own.subarray(part * pageSize, (part + 1) * pageSize);
      positions.push(slots);
      let seen = 0;
      let fixed = 0;
      for (let i = 0; i < slots.length; i++) {
        const position = slots[i] as number;
        const distance = queryPosition - position;
        if (position < 0 || distance < 0 || distance >= reach) continue;
        seen++;
        if (position < sinks || distance < local) fixed = 1;
      }
      numSeen[page] = seen;
      isFixed[page] = fixed;
    }
  }
  return { count, blocks, pageIds, parts, positions, numSeen, isFixed };
}

/** Where the boxes of pages are: for each page arrays, and where its rows of KV head 0 begin in them. */
export interface BoxTable {
  readonly counts: readonly Int32Array[];
  readonly countBegins: Int32Array;
  readonly minima: readonly Float32Array[];
  readonly maxima: readonly Float32Array[];
  readonly minBegins: Int32Array;
  readonly maxBegins: Int32Array;
}

/** The pages of one query for one KV head. */
export interface PageChoice {
  /** Attended to whatever their keys are. */
  readonly fixed: Int32Array;
  /** Others, best first where the order matters, and the bounds of their logits for each query head of the group. */
  readonly candidates: Int32Array;
  readonly bounds: Float64Array; // [candidates, groupSize]
}

export interface ChoiceShape {
  readonly headDim: number;
  readonly groupSize: number;
  readonly scale: number;
  readonly softCap: number;
}

/**
 * @param queries the group's query heads `[groupSize, headDim]` at `begin`
 * @returns as many candidates as the budget allows; all of them, best first, with an `epsilon`
 */
export function choosePages(
  pages: PageList,
  boxes: BoxTable,
  kvHead: number,
  queries: Float32Array,
  begin: number,
  { headDim, groupSize, scale, softCap }: ChoiceShape,
  { budget, epsilon, pageSize }: PageTopKPolicy,
): PageChoice {
  const { count, numSeen, isFixed } = pages;
  const boxBounds = new BoxBounds(groupSize, headDim, { scale, softCap });
  boxBounds.setQueries(queries, begin);
  const fixed: number[] = [];
  const candidates = new Int32Array(count);
  const bounds = new Float64Array(count * groupSize);
  const best = new Float64Array(count);
  let numCandidates = 0;
  for (let page = 0; page < count; page++) {
    if (numSeen[page] === 0) continue;
    const inBox = (boxes.counts[page] as Int32Array)[(boxes.countBegins[page] as number) + kvHead] as number;
    if (isFixed[page] === 1 || inBox !== pageSize) {
      fixed.push(page);
      continue;
    }
    const minima = boxes.minima[page] as Float32Array;
    const maxima = boxes.maxima[page] as Float32Array;
    const minBegin = (boxes.minBegins[page] as number) + kvHead * headDim;
    const maxBegin = (boxes.maxBegins[page] as number) + kvHead * headDim;
    let largest = -Infinity;
    for (let g = 0; g < groupSize; g++) {
      const bound = boxBounds.of(g, minima, minBegin, maxima, maxBegin);
      bounds[numCandidates * groupSize + g] = bound;
      if (bound > largest) largest = bound;
    }
    best[numCandidates] = largest;
    candidates[numCandidates++] = page;
  }
  const wanted = Math.min(numCandidates, budget === 'all' ? numCandidates : budget);
  let order: Int32Array;
  if (epsilon > 0) {
    order = Int32Array.from({ length: numCandidates }, (_, i) => i).sort(
      (a, b) => (best[b] as number) - (best[a] as number) || a - b,
    );
  } else {
    order = new Int32Array(wanted);
    largestIndices(best.subarray(0, numCandidates), wanted, order);
  }
  const chosenBounds = new Float64Array(order.length * groupSize);
  for (const [index, candidate] of order.entries()) {
    for (let g = 0; g < groupSize; g++) {
      chosenBounds[index * groupSize + g] = bounds[candidate * groupSize + g] as number;
    }
  }
  return {
    fixed: Int32Array.from(fixed),
    candidates: order.map((candidate) => candidates[candidate] as number),
    bounds: chosenBounds,
  };
}

/**
 * An upper bound of the softmax mass that is missing, the largest over the query heads of a group.
 * @param numAttended leading candidates that have been attended to
 * @param m the largest logit so far and `l` the sum of `exp(logit - m)`, of the group's query heads at `row`
 */
export function missingMass(
  { candidates, bounds }: PageChoice,
  { numSeen }: PageList,
  numAttended: number,
  m: Float32Array,
  l: Float32Array,
  row: number,
): number {
  const groupSize = candidates.length === 0 ? 0 : bounds.length / candidates.length;
  let largest = 0;
  for (let g = 0; g < groupSize; g++) {
    let rest = 0;
    for (let i = numAttended; i < candidates.length; i++) {
      const bound = (bounds[i * groupSize + g] as number) - (m[row + g] as number);
      rest += (numSeen[candidates[i] as number] as number) * Math.exp(bound);
    }
    largest = Math.max(largest, missingShare(rest, l[row + g] as number));
  }
  return largest;
}
