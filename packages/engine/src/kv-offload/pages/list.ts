/** The pages of a sequence, in the pool and outside it, and which of them a query attends to. */
import type { SequenceView } from '@winnow/kv-cache';
import { PageSelection, SeenPages, type Attributes, type PageBox } from '@winnow/ops';

/** The pages of a sequence in the order of their positions; each is part of a block. */
export interface PageList {
  readonly count: number;
  /** Block in the pool; -1 for a page outside it, which `pageIds` identifies. */
  readonly blocks: Int32Array;
  readonly pageIds: Int32Array;
  /** Which part of the block. */
  readonly parts: Int32Array;
  /** Positions of the slots, -1 for empty ones. */
  readonly positions: readonly Int32Array[];
  readonly seen: SeenPages;
}

/** A block of a sequence, wherever it is. */
interface ListedBlock {
  readonly first: number;
  readonly block: number;
  readonly pageId: number;
  readonly positions: Int32Array;
}

/** @param attributes of `page-topk-attention` */
export function listPages(
  view: SequenceView,
  sizes: { readonly blockSize: number; readonly pageSize: number },
  queryPosition: number,
  attributes: Attributes,
): PageList {
  const { blockSize, pageSize } = sizes;
  const numParts = blockSize / pageSize;
  const listed = listBlocks(view, blockSize);
  const count = listed.length * numParts;
  const blocks = new Int32Array(count);
  const pageIds = new Int32Array(count);
  const parts = new Int32Array(count);
  const seen = new SeenPages(count, attributes);
  const positions: Int32Array[] = [];
  for (let page = 0; page < count; page++) {
    const part = page % numParts;
    const { block, pageId, positions: ofBlock } = listed[(page - part) / numParts] as ListedBlock;
    const slots = ofBlock.subarray(part * pageSize, (part + 1) * pageSize);
    blocks[page] = block;
    pageIds[page] = pageId;
    parts[page] = part;
    positions.push(slots);
    seen.add(page, queryPosition, slots);
  }
  return { count, blocks, pageIds, parts, positions, seen };
}

function listBlocks(view: SequenceView, blockSize: number): ListedBlock[] {
  const firstOf = (positions: Int32Array): number => positions.find((position) => position >= 0) ?? Infinity;
  const listed: ListedBlock[] = [];
  for (const [index, block] of view.blocks.entries()) {
    const positions = view.positions.subarray(index * blockSize, (index + 1) * blockSize);
    listed.push({ first: firstOf(positions), block, pageId: -1, positions });
  }
  for (const { pageId, positions } of view.detachedPages) {
    listed.push({ first: firstOf(positions), block: -1, pageId, positions });
  }
  return listed.sort((a, b) => a.first - b.first);
}

/** The pages of one query for one KV head. */
export interface PageChoice {
  /** Always attended to. */
  readonly fixed: Int32Array;
  /** The other pages, to be taken best first. */
  readonly selection: PageSelection;
}

/**
 * @param boxOf the box of a page
 * @param queries the group's query heads `[groupSize, headDim]` at `begin`
 */
export function choosePages(
  { count, seen }: PageList,
  boxOf: (page: number) => PageBox,
  queries: { readonly q: Float32Array; readonly begin: number; readonly groupSize: number; readonly headDim: number },
  pageSize: number,
  attributes: Attributes,
): PageChoice {
  const { q, begin, groupSize, headDim } = queries;
  const selection = new PageSelection({ maxPages: count, pageSize, groupSize, headDim }, attributes);
  selection.begin(q, begin);
  const fixed: number[] = [];
  for (let page = 0; page < count; page++) {
    if (seen.numSeen[page] !== 0 && selection.add(page, seen, boxOf(page))) fixed.push(page);
  }
  return { fixed: Int32Array.from(fixed), selection };
}

/** The next best pages, at most `maxPages`. */
export function takePages(selection: PageSelection, maxPages: number): Int32Array {
  const pages: number[] = [];
  while (pages.length < maxPages && !selection.isSpent) pages.push(selection.take());
  return Int32Array.from(pages);
}
