/**
 * Layers that select their pages: at the layer's boundary the host selects pages by their key boxes, which are all in
 * memory, gathers only those, and runs a small program that attends to them.
 */
import type { SequenceView } from '@winnow/kv-cache';
import { kvBufferNames } from '@winnow/models';
import type { Attributes, Executable } from '@winnow/ops';
import { boxBufferNames, pageTopKAttributes, type PageTopKPolicy } from '@winnow/sparse-attention';
import type { KvBuffer } from '../../memory/kv-memory.js';
import type { OffloadBuffers } from '../buffers.js';
import { BoxReader } from './boxes.js';
import { choosePages, listPages, takePages, type PageChoice } from './list.js';
import { PageStaging, type PageItem } from './staging.js';
import type { OffloadParts } from '../parts.js';
import type { ChosenProgram } from '../plan.js';
import { tierBuffersOf, type StreamShape, type TierBuffers, type TieredLayer } from '../program.js';

/** A token of a step. */
export interface PageQuery {
  readonly view: SequenceView;
  /** Its row in the buffers of queries and states. */
  readonly row: number;
  readonly position: number;
}

/** With an error bound: the number of pages of a query between two computations of the bound. */
const pagesPerRound = 4;

interface Layer {
  readonly shape: StreamShape;
  readonly names: TierBuffers;
  readonly policy: PageTopKPolicy;
  /** Of `page-topk-attention`. */
  readonly attributes: Attributes;
  readonly boxes: BoxReader;
  readonly staging: PageStaging;
}

/** The choice of one query and KV head. */
interface OpenChoice extends PageChoice {
  readonly item: Omit<PageItem, 'pages'>;
}

export class PageAttention {
  readonly #parts: OffloadParts;
  readonly #buffers: OffloadBuffers;
  readonly #layers: ReadonlyMap<string, Layer>;
  #numChunks = 0;
  #waitedMs = 0;
  #numChosenPages = 0;

  constructor(parts: OffloadParts, buffers: OffloadBuffers) {
    this.#parts = parts;
    this.#buffers = buffers;
    this.#layers = new Map(
      parts.plan.layers.flatMap((layer) =>
        layer.policy === undefined ? [] : [[layer.boundary, layerOf(parts, buffers, layer, layer.policy)] as const],
      ),
    );
  }

  /** Whether a boundary belongs to a layer that selects pages. */
  has(boundary: string): boolean {
    return this.#layers.has(boundary);
  }

  /** Merges the attention of queries over the pages that they select into their states. */
  async attend(boundary: string, queries: readonly PageQuery[], signal: AbortSignal | undefined): Promise<void> {
    const layer = this.#layers.get(boundary) as Layer;
    const choices: OpenChoice[] = [];
    for (const query of queries) choices.push(...(await this.#choose(layer, query)));
    if (layer.policy.epsilon > 0) return this.#attendWithinBound(layer, choices, signal);
    const items = choices.map(({ item, fixed, selection }) => {
      const pages = Int32Array.from([...fixed, ...takePages(selection, Infinity)]);
      return { ...item, pages: pages.sort() };
    });
    await this.#attendTo(layer, items, signal);
  }

  statistics(): { readonly numChunks: number; readonly waitedMs: number; readonly numChosenPages: number } {
    return { numChunks: this.#numChunks, waitedMs: this.#waitedMs, numChosenPages: this.#numChosenPages };
  }

  /** The pages of a query, for each KV head. */
  async #choose(layer: Layer, { view, row, position }: PageQuery): Promise<OpenChoice[]> {
    const { shape, names, policy, attributes, boxes } = layer;
    const { numHeads, numKvHeads, headDim } = shape;
    const { pageSize } = policy;
    const groupSize = numHeads / numKvHeads;
    const list = listPages(view, { blockSize: this.#parts.pool.manager.blockSize, pageSize }, position, attributes);
    const boxOf = await boxes.read(list);
    const length = numHeads * headDim;
    const q = await this.#buffers.readFloats(names.queries, row * length * 4, length);
    return Array.from({ length: numKvHeads }, (_, kvHead) => {
      const queries = { q, begin: kvHead * groupSize * headDim, groupSize, headDim };
      const choice = choosePages(list, (page) => boxOf(page, kvHead), queries, pageSize, attributes);
      return { item: { tokenRow: row, position, kvHead, list }, ...choice };
    });
  }

  /** Attends to a few more pages at a time, best first, until the bound on the missing mass is small enough. */
  async #attendWithinBound(
    layer: Layer,
    choices: readonly OpenChoice[],
    signal: AbortSignal | undefined,
  ): Promise<void> {
    await this.#attendTo(
      layer,
      choices.map(({ item, fixed }) => ({ ...item, pages: fixed })),
      signal,
    );
    let open = await this.#openChoices(layer, choices);
    while (open.length > 0) {
      const items = open.map(({ item, selection }) => ({ ...item, pages: takePages(selection, pagesPerRound) }));
      await this.#attendTo(layer, items, signal);
      open = await this.#openChoices(layer, open);
    }
  }

  /** Choices that may miss more than the bound, and have candidates left. */
  async #openChoices({ shape, names, policy }: Layer, choices: readonly OpenChoice[]): Promise<readonly OpenChoice[]> {
    const buffers = this.#buffers;
    const groupSize = shape.numHeads / shape.numKvHeads;
    const open: OpenChoice[] = [];
    for (const choice of choices) {
      const { item, selection } = choice;
      if (selection.isSpent) continue;
      const begin = (item.tokenRow * shape.numHeads + item.kvHead * groupSize) * 4;
      const m = await buffers.readFloats(names.maxima, begin, groupSize);
      const l = await buffers.readFloats(names.sums, begin, groupSize);
      const isGoodEnough = m.every((max, g) => selection.missing(g, max, l[g] as number) <= policy.epsilon);
      if (!isGoodEnough) open.push(choice);
    }
    return open;
  }

  /** Attends to the pages of all items, chunk by chunk; the next chunk is read meanwhile. */
  async #attendTo({ staging }: Layer, items: readonly PageItem[], signal: AbortSignal | undefined): Promise<void> {
    const perItem = staging.pagesPerItem(items.length);
    const numRounds = Math.ceil(Math.max(0, ...items.map(({ pages }) => pages.length)) / perItem);
    if (numRounds === 0) return;
    const chunk = (round: number): PageItem[] =>
      items.map((item) => ({ ...item, pages: item.pages.subarray(round * perItem, (round + 1) * perItem) }));
    let loading = staging.load(chunk(0), 0);
    try {
      for (let round = 0; round < numRounds; round++) {
        await this.#wait(loading);
        signal?.throwIfAborted();
        if (round + 1 < numRounds) {
          loading = staging.load(chunk(round + 1), (round + 1) % 2);
          loading.catch(() => undefined); // the round that waits for it reports it
        }
        await staging.run(chunk(round), round % 2, signal);
        this.#numChunks++;
      }
    } finally {
      await loading.catch(() => undefined);
    }
    for (const { pages } of items) this.#numChosenPages += pages.length;
  }

  async #wait(loading: Promise<void>): Promise<void> {
    const startMs = this.#parts.host.now();
    await loading;
    this.#waitedMs += this.#parts.host.now() - startMs;
  }
}

function layerOf(
  { host, pool, plan, store }: OffloadParts,
  buffers: OffloadBuffers,
  { layer, kvLayer, shape }: TieredLayer,
  policy: PageTopKPolicy,
): Layer {
  const { numKvHeads, headDim, scale, softCap, window } = shape;
  const { pageSize } = policy;
  const attributes = { scale, softCap, window, causal: true, ...pageTopKAttributes(policy) };
  const blockBuffer = (name: string): KvBuffer =>
    pool.memory.blockBuffers.find((buffer) => buffer.name === name) as KvBuffer;
  const { keys, values } = kvBufferNames(kvLayer);
  const boxNames = boxBufferNames(kvLayer, pageSize);
  const boxes = {
    boxCounts: blockBuffer(boxNames.boxCounts),
    keyMin: blockBuffer(boxNames.keyMin),
    keyMax: blockBuffer(boxNames.keyMax),
  };
  const chosen = plan.chosen.get(layer) as ChosenProgram;
  const names = tierBuffersOf(shape);
  const staging = new PageStaging({
    buffers,
    names,
    store,
    executable: host.executables.get(chosen.program) as Executable,
    chosen,
    keys: blockBuffer(keys),
    values: blockBuffer(values),
    numKvHeads,
    blockSize: pool.manager.blockSize,
    pageSize,
  });
  const reader = new BoxReader({ buffers, store, boxes, numKvHeads, headDim });
  return { shape, names, policy, attributes, boxes: reader, staging };
}
