/**
 * Layers that choose their pages: at the layer's boundary the host chooses by the boxes, which are all in memory, brings only
 * the chosen pages together, from wherever they are, and lets a small program attend to them.
 */
import type { SequenceView } from '@winnow/kv-cache';
import { kvBufferNames } from '@winnow/models';
import { createScalarBlock, type Backend, type BufferHandle, type Executable, type Program } from '@winnow/ops';
import { boxBufferNames, type PageTopKPolicy } from '@winnow/sparse-attention';
import type { KvBuffer } from '../memory/kv-memory.js';
import { choosePages, listPages, missingMass, type BoxTable, type PageChoice, type PageList } from './page-choice.js';
import type { ChosenProgram, TierPlan } from './plan.js';
import { tierBuffers, type StreamShape } from './program.js';
import { joinPageErrors, type TierStore } from './store.js';

/** A token of a step. */
export interface ChoosingQuery {
  readonly view: SequenceView;
  /** Its row in the buffers of queries and states. */
  readonly row: number;
  readonly position: number;
}

export interface TierChooser {
  /** Whether a boundary is one of a layer that chooses. */
  has(boundary: string): boolean;
  /** Adds the attention of queries over the pages that they choose to their states. */
  attend(boundary: string, queries: readonly ChoosingQuery[], signal: AbortSignal | undefined): Promise<void>;
  statistics(): { readonly numChunks: number; readonly waitedMs: number; readonly numChosenPages: number };
}

export interface TierChooserOptions {
  readonly backend: Backend;
  readonly plan: TierPlan;
  readonly blockSize: number;
  readonly blockBuffers: readonly KvBuffer[];
  readonly buffers: ReadonlyMap<string, BufferHandle>;
  readonly executables: ReadonlyMap<Program, Executable>;
  readonly store: TierStore;
  readonly now: () => number;
}

/** With an error bound, pages of a query that are attended to before it is computed again. */
const pagesPerRound = 4;

interface Layer {
  readonly shape: StreamShape;
  readonly policy: PageTopKPolicy;
  readonly keys: KvBuffer;
  readonly values: KvBuffer;
  readonly boxes: Readonly<Record<'boxCounts' | 'keyMin' | 'keyMax', KvBuffer>>;
  readonly chosen: ChosenProgram;
  readonly run: (items: readonly Item[], half: number, signal: AbortSignal | undefined) => Promise<void>;
}

/** The pages of one query and KV head in one chunk. */
interface Item {
  readonly tokenRow: number;
  readonly position: number;
  readonly kvHead: number;
  readonly list: PageList;
  readonly pages: Int32Array;
}

export function createTierChooser(options: TierChooserOptions): TierChooser {
  const { backend, plan, blockSize, blockBuffers, buffers, executables, store, now } = options;
  const handle = (name: string): BufferHandle => buffers.get(name) as BufferHandle;
  const blockBuffer = (name: string): KvBuffer => blockBuffers.find((buffer) => buffer.name === name) as KvBuffer;
  const layers = new Map<string, Layer>();
  for (const { layer, boundary, shape, policy } of plan.layers) {
    if (policy === undefined) continue;
    const names = kvBufferNames(layer);
    const boxes = boxBufferNames(layer, policy.pageSize);
    const chosen = plan.chosen.get(layer) as ChosenProgram;
    const executable = executables.get(chosen.program) as Executable;
    layers.set(boundary, {
      shape,
      policy,
      keys: blockBuffer(names.keys),
      values: blockBuffer(names.values),
      boxes: {
        boxCounts: blockBuffer(boxes.boxCounts),
        keyMin: blockBuffer(boxes.keyMin),
        keyMax: blockBuffer(boxes.keyMax),
      },
      chosen,
      run: chosenExecutable(executable, shape.numKvHeads, policy.pageSize, chosen),
    });
  }
  let numChunks = 0;
  let waitedMs = 0;
  let numChosenPages = 0;

  /** Bytes of a buffer, from where the host can see them or as a copy. */
  async function bytesOf(name: string, byteOffset: number, sizeBytes: number): Promise<Uint8Array> {
    const view = backend.view(handle(name));
    if (view !== undefined) return view.subarray(byteOffset, byteOffset + sizeBytes);
    const bytes = new Uint8Array(sizeBytes);
    await backend.read(handle(name), byteOffset, bytes);
    return bytes;
  }

  async function floatsOf(name: string, byteOffset: number, count: number): Promise<Float32Array> {
    const bytes = await bytesOf(name, byteOffset, count * 4);
    return new Float32Array(bytes.buffer, bytes.byteOffset, count);
  }

  /** Rows of a buffer by block: all at once where the host can see them, otherwise those that are asked for. */
  async function rowsOf(buffer: KvBuffer, blocks: ReadonlySet<number>): Promise<(block: number) => Float32Array> {
    const view = backend.view(handle(buffer.name));
    const length = buffer.rowBytes / 4;
    if (view !== undefined) {
      return (block) => new Float32Array(view.buffer, view.byteOffset + block * buffer.rowBytes, length);
    }
    const rows = new Map<number, Float32Array>();
    for (const block of blocks) rows.set(block, await floatsOf(buffer.name, block * buffer.rowBytes, length));
    return (block) => rows.get(block) as Float32Array;
  }

  async function boxTable({ shape, boxes }: Layer, { count, blocks, pageIds, parts }: PageList): Promise<BoxTable> {
    const { numKvHeads, headDim } = shape;
    const inPool = new Set(blocks.filter((block) => block >= 0));
    const rows = {
      counts: await rowsOf(boxes.boxCounts, inPool),
      minima: await rowsOf(boxes.keyMin, inPool),
      maxima: await rowsOf(boxes.keyMax, inPool),
    };
    const counts: Int32Array[] = [];
    const minima: Float32Array[] = [];
    const maxima: Float32Array[] = [];
    const countBegins = new Int32Array(count);
    const minBegins = new Int32Array(count);
    const maxBegins = new Int32Array(count);
    const asIntegers = ({ buffer, byteOffset, length }: Float32Array): Int32Array =>
      new Int32Array(buffer, byteOffset, length);
    for (let page = 0; page < count; page++) {
      const block = blocks[page] as number;
      const ofPart = (parts[page] as number) * numKvHeads;
      if (block >= 0) {
        counts.push(asIntegers(rows.counts(block)));
        minima.push(rows.minima(block));
        maxima.push(rows.maxima(block));
        countBegins[page] = ofPart;
        minBegins[page] = maxBegins[page] = ofPart * headDim;
      } else {
        const resident = store.resident(pageIds[page] as number);
        counts.push(asIntegers(resident));
        minima.push(resident);
        maxima.push(resident);
        countBegins[page] = store.residentOffset(boxes.boxCounts) + ofPart;
        minBegins[page] = store.residentOffset(boxes.keyMin) + ofPart * headDim;
        maxBegins[page] = store.residentOffset(boxes.keyMax) + ofPart * headDim;
      }
    }
    return { counts, countBegins, minima, maxima, minBegins, maxBegins };
  }

  /** Brings the pages of a chunk into half of the staging buffers. */
  async function load(
    { shape, keys, values, policy, chosen }: Layer,
    items: readonly Item[],
    half: number,
  ): Promise<void> {
    const { pageSize } = policy;
    const { stagedPages, maxPages } = chosen;
    interface Place {
      readonly staged: number;
      readonly kvHead: number;
      readonly part: number;
    }
    const ofBlock = new Map<number, Place[]>();
    const ofPage = new Map<number, Place[]>();
    const positions = new Int32Array(stagedPages * pageSize);
    const perItem = Math.min(maxPages, Math.floor(stagedPages / items.length));
    for (const [index, { kvHead, list, pages }] of items.entries()) {
      for (const [at, page] of pages.entries()) {
        const staged = index * perItem + at;
        const slots = list.positions[page] as Int32Array;
        positions.fill(-1, staged * pageSize, (staged + 1) * pageSize);
        positions.set(slots, staged * pageSize);
        const block = list.blocks[page] as number;
        const [places, id] = block >= 0 ? [ofBlock, block] : [ofPage, list.pageIds[page] as number];
        const place = { staged, kvHead, part: list.parts[page] as number };
        const others = places.get(id);
        if (others === undefined) places.set(id, [place]);
        else others.push(place);
      }
    }
    const stageRows = async (name: string, buffer: KvBuffer): Promise<void> => {
      const slotBytes = buffer.rowBytes / (shape.numKvHeads * blockSize);
      const pageBytes = pageSize * slotBytes;
      const begin = half * stagedPages * pageBytes;
      const view = backend.view(handle(name))?.subarray(begin, begin + stagedPages * pageBytes);
      const target = view ?? new Uint8Array(stagedPages * pageBytes);
      const take = (row: Uint8Array, { staged, kvHead, part }: Place): void => {
        const from = (kvHead * blockSize + part * pageSize) * slotBytes;
        target.set(row.subarray(from, from + pageBytes), staged * pageBytes);
      };
      const reads = [...ofPage].map(async ([pageId, places]) => {
        const { runId, index } = store.locate(pageId);
        let run = store.peekRun(runId, buffer);
        if (run === undefined) {
          run = new Uint8Array(store.runBlocks * buffer.rowBytes);
          await store.readRun(runId, buffer, run, true);
        }
        const row = run.subarray(index * buffer.rowBytes, (index + 1) * buffer.rowBytes);
        for (const place of places) take(row, place);
      });
      const results = await Promise.allSettled([
        ...reads,
        ...[...ofBlock].map(async ([block, places]) => {
          const row = await bytesOf(buffer.name, block * buffer.rowBytes, buffer.rowBytes);
          for (const place of places) take(row, place);
        }),
      ]);
      const errors = results.flatMap((result) => (result.status === 'rejected' ? [result.reason as unknown] : []));
      if (errors.length > 0) throw joinPageErrors(errors);
      if (view === undefined) await backend.write(handle(name), begin, target);
    };
    const results = await Promise.allSettled([
      stageRows(tierBuffers.chosenKeys, keys),
      stageRows(tierBuffers.chosenValues, values),
      backend.write(
        handle(tierBuffers.chosenPositions),
        half * stagedPages * pageSize * 4,
        new Uint8Array(positions.buffer),
      ),
    ]);
    const errors = results.flatMap((result) => (result.status === 'rejected' ? [result.reason as unknown] : []));
    if (errors.length > 0) throw joinPageErrors(errors);
  }

  /** Attends to the pages of all items, a chunk after the other; the next one is read meanwhile. */
  async function attendAll(layer: Layer, items: readonly Item[], signal: AbortSignal | undefined): Promise<void> {
    const { stagedPages, maxPages } = layer.chosen;
    const perItem = Math.min(maxPages, Math.floor(stagedPages / items.length));
    const numRounds = Math.ceil(Math.max(0, ...items.map(({ pages }) => pages.length)) / perItem);
    const chunk = (round: number): Item[] =>
      items.map((item) => ({ ...item, pages: item.pages.subarray(round * perItem, (round + 1) * perItem) }));
    if (numRounds === 0) return;
    let loading = load(layer, chunk(0), 0);
    try {
      for (let round = 0; round < numRounds; round++) {
        const startMs = now();
        await loading;
        waitedMs += now() - startMs;
        signal?.throwIfAborted();
        if (round + 1 < numRounds) {
          loading = load(layer, chunk(round + 1), (round + 1) % 2);
          loading.catch(() => undefined); // whoever waits for it is told
        }
        await layer.run(chunk(round), round % 2, signal);
        numChunks++;
      }
    } finally {
      await loading.catch(() => undefined);
    }
    for (const { pages } of items) numChosenPages += pages.length;
  }

  return {
    has: (boundary) => layers.has(boundary),
    async attend(boundary, queries, signal): Promise<void> {
      const layer = layers.get(boundary) as Layer;
      const { shape, policy } = layer;
      const { numHeads, numKvHeads, headDim, scale, softCap, window } = shape;
      const groupSize = numHeads / numKvHeads;
      const choiceShape = { headDim, groupSize, scale, softCap };
      const open: { readonly item: Omit<Item, 'pages'>; readonly choice: PageChoice; numDone: number }[] = [];
      for (const { view, row, position } of queries) {
        const list = listPages(view, blockSize, position, window, policy);
        const boxes = await boxTable(layer, list);
        const q = await floatsOf(tierBuffers.queries, row * numHeads * headDim * 4, numHeads * headDim);
        for (let kvHead = 0; kvHead < numKvHeads; kvHead++) {
          const begin = kvHead * groupSize * headDim;
          const choice = choosePages(list, boxes, kvHead, q, begin, choiceShape, policy);
          open.push({ item: { tokenRow: row, position, kvHead, list }, choice, numDone: 0 });
        }
      }
      if (policy.epsilon === 0) {
        const items = open.map(({ item, choice: { fixed, candidates } }) => {
          const pages = new Int32Array(fixed.length + candidates.length);
          pages.set(fixed);
          pages.set(candidates, fixed.length);
          return { ...item, pages: pages.sort() };
        });
        await attendAll(layer, items, signal);
        return;
      }
      await attendAll(
        layer,
        open.map(({ item, choice }) => ({ ...item, pages: choice.fixed })),
        signal,
      );
      const budget = policy.budget === 'all' ? Infinity : policy.budget;
      let left = open;
      for (;;) {
        const still: typeof left = [];
        for (const one of left) {
          const { item, choice, numDone } = one;
          if (numDone >= Math.min(budget, choice.candidates.length)) continue;
          const begin = (item.tokenRow * numHeads + item.kvHead * groupSize) * 4;
          const m = await floatsOf(tierBuffers.maxima, begin, groupSize);
          const l = await floatsOf(tierBuffers.sums, begin, groupSize);
          if (!(missingMass(choice, item.list, numDone, m, l, 0) <= policy.epsilon)) still.push(one);
        }
        if (still.length === 0) return;
        const items = still.map((one) => {
          const end = Math.min(one.numDone + pagesPerRound, budget, one.choice.candidates.length);
          const pages = one.choice.candidates.subarray(one.numDone, end);
          one.numDone = end;
          return { ...one.item, pages };
        });
        await attendAll(layer, items, signal);
        left = still;
      }
    },
    statistics: () => ({ numChunks, waitedMs, numChosenPages }),
  };
}

function chosenExecutable(
  executable: Executable,
  numKvHeads: number,
  pageSize: number,
  { stagedPages, maxPages }: ChosenProgram,
): Layer['run'] {
  const { program } = executable;
  const scalars = createScalarBlock(program.scalars, program.symbols);
  const rows = scalars.slot('rows');
  const positions = scalars.slot('positions');
  const sequences = scalars.slot('sequences');
  const table = scalars.slot('blockTable');
  const lengths = scalars.slot('contextLengths');
  return async (items, half, signal) => {
    const perItem = Math.min(maxPages, Math.floor(stagedPages / items.length));
    for (const [index, { tokenRow, kvHead, position, pages }] of items.entries()) {
      rows[index] = tokenRow * numKvHeads + kvHead;
      positions[index] = position;
      sequences[index] = index;
      lengths[index] = pages.length * pageSize;
      for (let at = 0; at < pages.length; at++) {
        table[index * maxPages + at] = half * stagedPages + index * perItem + at;
      }
    }
    scalars.bind('T', items.length);
    await executable.run(scalars.words, signal === undefined ? {} : { signal });
  };
}
