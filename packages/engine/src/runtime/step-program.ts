/** A prepared program with its scalar block: fills in the tokens and caches of one or more sequences and runs them. */
import type { AppendedSlots } from '@winnow/kv-cache';
import { createScalarBlock, type Executable } from '@winnow/ops';
import type { Sequence } from './sequence.js';
import { createMassReader } from '../plan/eviction.js';
import { tierScalars } from '../kv-offload/program.js';
import type { TierStream } from '../kv-offload/stream.js';
import { createStepOutputs, type ReadOutput } from '../memory/step-outputs.js';

/** The share of one sequence in a step. */
export interface StepPart {
  readonly sequence: Sequence;
  /** The tokens `tokens[offset, offset + slots.length)` are computed. */
  readonly tokens: Int32Array;
  readonly offset: number;
  readonly appended: AppendedSlots;
  /** Which of the part's tokens need logits, relative to its first. */
  readonly outputRows: readonly number[];
}

export interface StepProgram {
  /** Most tokens of one step. */
  readonly maxTokens: number;
  readonly maxSequences: number;
  /** Most output rows of one step. */
  readonly maxOutputRows: number;
  /** Whether it reads and writes recurrent states. */
  readonly hasState: boolean;
  run(parts: readonly StepPart[], signal: AbortSignal | undefined): Promise<void>;
  /** How much each slot of a part of the step that just ran was looked at, in programs that measure it. */
  massesOf(part: number, sequence: Sequence): Float64Array | undefined;
  /** Outputs of a part of the step that just ran. @param firstRow output rows of the parts before it */
  reader(firstRow: number): ReadOutput;
}

/**
 * @param stream for programs that attend to pages outside the pool
 * @param mayChoose whether layers of the program choose among them
 */
export function createStepProgram(
  executable: Executable,
  maxBlocksPerSequence: number,
  stream?: TierStream,
  mayChoose = false,
): StepProgram {
  const { program } = executable;
  const capacity = (symbol: string): number => program.symbols.get(symbol) as number;
  const scalars = createScalarBlock(program.scalars, program.symbols);
  const tokenSlot = scalars.slot('tokens');
  const positionSlot = scalars.slot('positions');
  const sequenceSlot = scalars.slot('sequences');
  const slotSlot = scalars.slot('slots');
  const outputSlot = scalars.slot('outputRows');
  const lengthSlot = scalars.slot('contextLengths');
  const tableSlot = scalars.slot('blockTable');
  const hasState = program.scalars.slots.has('stateFrom');
  const stateFrom = hasState ? scalars.slot('stateFrom') : undefined;
  const stateTo = hasState ? scalars.slot('stateTo') : undefined;
  const maxOutputRows = capacity('R');
  const outputs = createStepOutputs(executable);
  const masses = createMassReader(executable);
  const readFirst: ReadOutput = (output, target) => executable.read(output, target);

  function fill(parts: readonly StepPart[]): void {
    let numTokens = 0;
    let numRows = 0;
    for (let index = 0; index < parts.length; index++) {
      const { sequence, tokens, offset, appended, outputRows } = parts[index] as StepPart;
      const { slots, positions } = appended;
      for (let row = 0; row < outputRows.length; row++) outputSlot[numRows++] = numTokens + (outputRows[row] as number);
      for (let i = 0; i < slots.length; i++, numTokens++) {
        tokenSlot[numTokens] = tokens[offset + i] as number;
        positionSlot[numTokens] = positions[i] as number;
        sequenceSlot[numTokens] = index;
        slotSlot[numTokens] = slots[i] as number;
      }
      const { view, state } = sequence;
      lengthSlot[index] = view.numSlots;
      tableSlot.set(view.blocks, index * maxBlocksPerSequence);
      if (state === undefined || stateFrom === undefined || stateTo === undefined) continue;
      stateFrom[index] = state.from;
      stateTo[index] = state.to;
    }
    scalars.bind('T', numTokens);
    scalars.bind('B', parts.length);
    scalars.bind('R', numRows);
    outputs.begin(numRows);
  }

  return {
    maxTokens: capacity('T'),
    maxSequences: capacity('B'),
    maxOutputRows,
    hasState,
    async run(parts, signal): Promise<void> {
      fill(parts);
      const options = signal === undefined ? {} : { signal };
      if (stream === undefined) {
        await executable.run(scalars.words, options);
        return masses?.read(parts.length);
      }
      const streamed = stream.begin(parts, mayChoose, signal);
      scalars.slot(tierScalars.queryRows).set(streamed.queryRows);
      scalars.slot(tierScalars.stateRows).set(streamed.stateRows);
      try {
        await executable.run(scalars.words, { ...options, onBoundary: streamed.onBoundary });
      } finally {
        await streamed.end();
      }
    },
    massesOf: (part, { view }) => masses?.of(part, view.numSlots),
    reader: (firstRow) => (firstRow === 0 ? readFirst : outputs.reader(firstRow)),
  };
}
