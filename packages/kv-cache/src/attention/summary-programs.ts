/** The buffers of page summaries and the programs that fill them. */
import { BoundProgram, externalKv, type BufferHandle, type ProgramBuilder, type ProgramTensor } from '@winnow/ops';
import type { KvShape } from './shape.js';
import type { KvStorage } from './storage.js';
import type { PageSummaryOptions } from './page-summaries.js';

/** Slots per run. */
const chunkSlots = 64;

/** Elements per row of each tensor; a row belongs to a block and KV head. */
function rowLengths({ landmarks, bounds, transposedKeys }: PageSummaryOptions, shape: KvShape): Map<string, number> {
  const { headDim, valueDim, blockSize } = shape;
  const lengths = new Map<string, number>();
  if (landmarks === true) lengths.set('meanCounts', 1).set('keyMeans', headDim).set('valueMeans', valueDim);
  if (bounds === true) {
    lengths.set('boxCounts', 1).set('keyMin', headDim).set('keyMax', headDim).set('valueNorms', 1);
  }
  if (transposedKeys === true) lengths.set('columns', headDim * blockSize);
  return lengths;
}

/** Appends the ops that summarize the blocks of `slots`. */
function appendSummaries(
  b: ProgramBuilder,
  { landmarks, bounds }: PageSummaryOptions,
  shape: KvShape,
  numBlocks: number,
  slots: ProgramTensor,
): void {
  const { headDim, valueDim } = shape;
  const rows = [numBlocks, 1, shape.numKvHeads];
  const { keys, values } = externalKv(b, shape, numBlocks);
  const inputs = { slots, keys, values };
  const tensor = (name: string, ...dims: number[]): ProgramTensor => b.external(name, 'kv', 'f32', [...rows, ...dims]);
  if (landmarks === true) {
    const counts = b.external('meanCounts', 'kv', 'i32', rows);
    const means = { keyMeans: tensor('keyMeans', headDim), valueMeans: tensor('valueMeans', valueDim) };
    b.append('block-mean-append', inputs, {}, { counts, ...means });
  }
  if (bounds === true) {
    const counts = b.external('boxCounts', 'kv', 'i32', rows);
    const box = { keyMin: tensor('keyMin', headDim), keyMax: tensor('keyMax', headDim) };
    b.append('block-box-append', inputs, {}, { counts, ...box, valueNorms: tensor('valueNorms') });
  }
}

/** One call at a time. */
export class SummaryPrograms {
  readonly buffers: ReadonlyMap<string, BufferHandle>;
  readonly #storage: KvStorage;
  readonly #options: PageSummaryOptions;
  readonly #rowLengths: ReadonlyMap<string, number>;
  #summarizing: Promise<BoundProgram> | undefined;
  #transposing: Promise<BoundProgram> | undefined;
  #compacting: Promise<BoundProgram> | undefined;

  constructor(storage: KvStorage, options: PageSummaryOptions) {
    const { numBlocks, numKvHeads } = storage.shape;
    this.#storage = storage;
    this.#options = options;
    this.#rowLengths = rowLengths(options, storage.shape);
    const buffers = new Map<string, BufferHandle>();
    for (const [label, length] of this.#rowLengths) {
      const sizeBytes = numBlocks * numKvHeads * length * 4;
      buffers.set(label, storage.backend.allocate({ sizeBytes, usage: 'kv', label }));
    }
    this.buffers = buffers;
  }

  get sizeBytes(): number {
    return [...this.buffers.values()].reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  }

  /** Row `[block, head]` of a tensor of f32. */
  async readRow(name: string, row: number): Promise<Float32Array> {
    const values = new Float32Array(this.#rowLengths.get(name) as number);
    const bytes = new Uint8Array(values.buffer);
    await this.#storage.backend.read(this.buffers.get(name) as BufferHandle, row * bytes.byteLength, bytes);
    return values;
  }

  /** Transposes the keys in slots. */
  async transpose(slots: readonly number[]): Promise<void> {
    if (this.#options.transposedKeys !== true) return;
    this.#transposing ??= this.#prepareTranspose();
    await runInChunks(await this.#transposing, slots);
  }

  /** Updates the summaries of blocks without holes. @param lastSlots the last filled slot of each */
  async summarize(lastSlots: readonly number[]): Promise<void> {
    if (!this.#hasCounts()) return;
    const { shape, buffers } = this.#storage;
    this.#summarizing ??= this.#prepareSummaries(shape.numBlocks, chunkSlots, [...buffers, ...this.buffers]);
    await runInChunks(await this.#summarizing, lastSlots);
  }

  /** Makes the ops rebuild the summaries of a block instead of extending them. */
  async clearCounts(block: number): Promise<void> {
    const zeros = new Uint8Array(4 * this.#storage.shape.numKvHeads);
    for (const name of ['meanCounts', 'boxCounts']) {
      const buffer = this.buffers.get(name);
      if (buffer !== undefined) await this.#storage.backend.write(buffer, block * zeros.byteLength, zeros);
    }
  }

  /** Summarizes a block with holes by compacting its filled slots into a scratch block. */
  async summarizeSparse(block: number, filled: readonly number[]): Promise<void> {
    if (!this.#hasCounts()) return;
    const { backend, shape } = this.#storage;
    this.#compacting ??= this.#prepareSummaries(1, 1, []);
    const program = await this.#compacting;
    const page = new Uint8Array(shape.pageBytes);
    await this.#storage.readPage(block, page);
    const offsets = filled.map((slot) => slot % shape.blockSize);
    const [keys, values] = [page.subarray(0, shape.keyBlockBytes), page.subarray(shape.keyBlockBytes)];
    await program.write('keys', compactRows(keys, shape, shape.keyRowBytes, offsets));
    await program.write('values', compactRows(values, shape, shape.valueRowBytes, offsets));
    const counts = new Int32Array(shape.numKvHeads);
    const tensors = [...this.#rowLengths].filter(([name]) => name !== 'columns');
    for (const [name] of tensors) if (name.endsWith('Counts')) await program.write(name, counts);
    program.scalars.slot('slots')[0] = offsets.length - 1;
    await program.run();
    for (const [name, length] of tensors) {
      const rows = new Uint8Array(4 * length * shape.numKvHeads);
      await backend.read(program.buffer(name), 0, rows);
      await backend.write(this.buffers.get(name) as BufferHandle, block * rows.byteLength, rows);
    }
  }

  async close(): Promise<void> {
    for (const program of [this.#summarizing, this.#transposing, this.#compacting]) await (await program)?.close();
    for (const buffer of this.buffers.values()) this.#storage.backend.free(buffer);
  }

  #hasCounts(): boolean {
    return this.#options.landmarks === true || this.#options.bounds === true;
  }

  #prepareSummaries(
    numBlocks: number,
    maxSlots: number,
    buffers: Iterable<[string, BufferHandle]>,
  ): Promise<BoundProgram> {
    const { backend, shape } = this.#storage;
    return BoundProgram.prepare({ backend, buffers: new Map(buffers) }, (b) =>
      appendSummaries(b, this.#options, shape, numBlocks, b.scalar('slots', [maxSlots])),
    );
  }

  #prepareTranspose(): Promise<BoundProgram> {
    const { backend, shape, buffers } = this.#storage;
    const { numBlocks, numKvHeads, blockSize, headDim } = shape;
    return BoundProgram.prepare({ backend, buffers: new Map([...buffers, ...this.buffers]) }, (b) => {
      const { keys } = externalKv(b, shape, numBlocks);
      const columns = b.external('columns', 'kv', 'f32', [numBlocks, numKvHeads, headDim, blockSize]);
      b.append('key-columns-append', { slots: b.scalar('slots', [chunkSlots]), keys }, {}, { columns });
    });
  }
}

async function runInChunks(program: BoundProgram, slots: readonly number[]): Promise<void> {
  for (let begin = 0; begin < slots.length; begin += chunkSlots) {
    const words = program.scalars.slot('slots').fill(-1); // ops skip the rest of the chunk
    words.set(slots.slice(begin, begin + chunkSlots));
    await program.run();
  }
}

/** Compacts the rows `[K, S]` at these offsets to the front of each head. */
function compactRows(
  bytes: Uint8Array,
  { numKvHeads, blockSize }: KvShape,
  rowBytes: number,
  offsets: readonly number[],
): Uint8Array {
  for (let head = 0; head < numKvHeads; head++) {
    const begin = head * blockSize;
    for (const [i, offset] of offsets.entries()) {
      bytes.copyWithin((begin + i) * rowBytes, (begin + offset) * rowBytes, (begin + offset + 1) * rowBytes);
    }
  }
  return bytes;
}
