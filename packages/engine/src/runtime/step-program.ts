/**
 * A prepared program with its scalar block: fills in the tokens and block tables of one or more sequences and runs it.
 */
import { imagePositionsSlot, rotaryRowsSlot } from '@winnow/models';
import { createScalarBlock, type Executable, type ScalarBlock } from '@winnow/ops';
import { offloadScalars } from '../kv-offload/program.js';
import type { TierStream } from '../kv-offload/stream.js';
import { StepImages, type StepImagesParts } from '../images/step-images.js';
import { StepOutputs, type ReadOutput } from '../memory/step-outputs.js';
import { MassReader } from '../plan/eviction.js';
import type { RowReader } from './batch.js';
import type { Sequence, StepPart } from './sequence.js';
import type { StepCounter } from './visited-keys.js';

/** The scalar slots of a program that a step fills in, by name. */
interface StepScalars {
  readonly tokens: Int32Array; // [T]
  readonly positions: Int32Array; // [T]
  readonly sequences: Int32Array; // [T]
  readonly slots: Int32Array; // [T]
  readonly outputRows: Int32Array; // [R]
  readonly contextLengths: Int32Array; // [B]
  readonly blockTable: Int32Array; // [B, maxBlocks]
  /** Rows of RoPE frequencies `[T]`, for programs in which they depend on the length of the sequence. */
  readonly rotaryRows: Int32Array | undefined;
  /** Positions that RoPE turns by `[T]`, in models with M-RoPE, whose tables `StepImages` fills in. */
  readonly imagePositions: Int32Array | undefined;
  /** Rows of recurrent states `[B]`, for programs that have them. */
  readonly stateFrom: Int32Array | undefined;
  readonly stateTo: Int32Array | undefined;
}

function scalarsOf(block: ScalarBlock, has: (slot: string) => boolean): StepScalars {
  const hasState = has('stateFrom');
  const hasImagePositions = has(imagePositionsSlot);
  return {
    tokens: block.slot('tokens'),
    positions: block.slot('positions'),
    sequences: block.slot('sequences'),
    slots: block.slot('slots'),
    outputRows: block.slot('outputRows'),
    contextLengths: block.slot('contextLengths'),
    blockTable: block.slot('blockTable'),
    rotaryRows: has(rotaryRowsSlot) && !hasImagePositions ? block.slot(rotaryRowsSlot) : undefined,
    imagePositions: hasImagePositions ? block.slot(imagePositionsSlot) : undefined,
    stateFrom: hasState ? block.slot('stateFrom') : undefined,
    stateTo: hasState ? block.slot('stateTo') : undefined,
  };
}

export interface StepProgramOptions {
  readonly maxBlocksPerSequence: number;
  /** For programs that attend to offloaded pages. */
  readonly stream?: TierStream | undefined;
  /** Whether layers of the program select among those pages. */
  readonly selectsPages?: boolean;
  readonly counter?: StepCounter | undefined;
  /** For models that take images. */
  readonly images?: StepImagesParts | undefined;
}

export class StepProgram {
  /** Maximum number of tokens, sequences and output rows of one step. */
  readonly maxTokens: number;
  readonly maxSequences: number;
  readonly maxOutputRows: number;
  /** Whether it reads and writes recurrent states. */
  readonly hasState: boolean;
  readonly #executable: Executable;
  readonly #options: StepProgramOptions;
  readonly #block: ScalarBlock;
  readonly #scalars: StepScalars;
  readonly #outputs: StepOutputs;
  readonly #masses: MassReader | undefined;
  readonly #rowsOfFirst: RowReader;
  readonly #images: StepImages | undefined;

  constructor(executable: Executable, options: StepProgramOptions) {
    const { scalars, symbols } = executable.program;
    const capacity = (symbol: string): number => symbols.get(symbol) as number;
    this.maxTokens = capacity('T');
    this.maxSequences = capacity('B');
    this.maxOutputRows = capacity('R');
    this.hasState = scalars.slots.has('stateFrom');
    this.#executable = executable;
    this.#options = options;
    this.#block = createScalarBlock(scalars, symbols);
    this.#scalars = scalarsOf(this.#block, (slot) => scalars.slots.has(slot));
    this.#images = options.images && new StepImages(options.images, this.#block, this.maxTokens);
    this.#outputs = new StepOutputs(executable);
    this.#masses = MassReader.create(executable);
    const readFirst: ReadOutput = (output, target) => executable.read(output, target);
    this.#rowsOfFirst = (row) => (row === 0 ? readFirst : this.#outputs.reader(row));
  }

  async run(parts: readonly StepPart[], signal: AbortSignal | undefined): Promise<void> {
    const numTokens = this.#fill(parts);
    await this.#images?.fill(this.#scalars.tokens, numTokens);
    if (this.#options.stream === undefined) {
      await this.#executable.run(this.#block.words, signal === undefined ? {} : { signal });
      await this.#masses?.read(parts.length);
      await this.#options.counter?.count(parts);
    } else {
      await this.#runStreamed(this.#options.stream, parts, signal);
    }
  }

  /** Attention mass per slot of a part of the last step, if the program tracks it. */
  massesOf(part: number, { view }: Sequence): Float64Array | undefined {
    return this.#masses?.of(part, view.numSlots);
  }

  /** Reads outputs of a part of the last step. @param firstRow output rows of the parts before it */
  rows(firstRow: number): RowReader {
    return firstRow === 0 ? this.#rowsOfFirst : (row) => this.#outputs.reader(firstRow + row);
  }

  profile(): ReturnType<Executable['profile']> {
    return this.#executable.profile();
  }

  /** Runs with a boundary at each layer, at which the stream attends to offloaded pages. */
  async #runStreamed(stream: TierStream, parts: readonly StepPart[], signal: AbortSignal | undefined): Promise<void> {
    const streamed = stream.begin(parts, this.#options.selectsPages === true, signal);
    this.#block.slot(offloadScalars.queryRows).set(streamed.queryRows);
    this.#block.slot(offloadScalars.stateRows).set(streamed.stateRows);
    const onBoundary = (boundary: string): Promise<void> => streamed.onBoundary(boundary);
    try {
      await this.#executable.run(this.#block.words, { ...(signal === undefined ? {} : { signal }), onBoundary });
    } finally {
      await streamed.end();
    }
  }

  /** @returns the number of tokens */
  #fill(parts: readonly StepPart[]): number {
    const { tokens, positions, sequences, slots, outputRows, rotaryRows, imagePositions } = this.#scalars;
    let numTokens = 0;
    let numRows = 0;
    for (let index = 0; index < parts.length; index++) {
      const part = parts[index] as StepPart;
      const { offset, count } = part;
      const { appended } = part.sequence;
      for (let row = 0; row < part.outputRows.length; row++) {
        outputRows[numRows++] = numTokens + (part.outputRows[row] as number);
      }
      for (let i = 0; i < count; i++, numTokens++) {
        const position = appended.positions[i] as number;
        tokens[numTokens] = part.tokens[offset + i] as number;
        positions[numTokens] = position;
        sequences[numTokens] = index;
        slots[numTokens] = appended.slots[i] as number;
        if (rotaryRows !== undefined) rotaryRows[numTokens] = part.sequence.rotaryRow(position);
        if (imagePositions !== undefined) imagePositions[numTokens] = part.sequence.imagePosition(position);
      }
      this.#fillSequence(index, part.sequence);
    }
    this.#block.bind('T', numTokens);
    this.#block.bind('B', parts.length);
    this.#block.bind('R', numRows);
    this.#outputs.begin(numRows);
    return numTokens;
  }

  #fillSequence(index: number, { view, state }: Sequence): void {
    const { contextLengths, blockTable, stateFrom, stateTo } = this.#scalars;
    contextLengths[index] = view.numSlots;
    blockTable.set(view.blocks, index * this.#options.maxBlocksPerSequence);
    if (state === undefined || stateFrom === undefined || stateTo === undefined) return;
    stateFrom[index] = state.from;
    stateTo[index] = state.to;
  }
}
