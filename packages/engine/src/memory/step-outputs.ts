/** Reads the outputs of a step row by row: each sequence of a batch sees its own rows as if it had run alone. */
import type { Executable, Program } from '@winnow/ops';
import type { OptionNames } from '@winnow/tensor';

/** What measurements can read while a model runs. */
export interface TraceOptions {
  /** The attention inputs of every layer, for `onAttention` of `logprobs`. Default false. */
  readonly attention?: boolean;
  /** The inputs of every FFN, for `feedForward` and calibration. Default false. */
  readonly feedForward?: boolean;
  /** How many keys each layer and KV head visits for generated tokens, in `metrics().visitedKeys`. Default false. */
  readonly visitedKeys?: boolean;
}

export const traceNames: OptionNames<TraceOptions> = { attention: true, feedForward: true, visitedKeys: true };

/** Copies an output of the last step, starting at the caller's first row. */
export type ReadOutput = (output: string, target: Float32Array | Int32Array) => Promise<void>;

interface Rows {
  readonly values: Float32Array | Int32Array; // [maxRows, width]
  readonly width: number;
  isRead: boolean;
}

export class StepOutputs {
  readonly #executable: Executable;
  readonly #rowsOf = new Map<string, Rows>();
  #numRows = 0;

  constructor(executable: Executable) {
    this.#executable = executable;
  }

  /** Call it before each run. @param numRows output rows of the step */
  begin(numRows: number): void {
    this.#numRows = numRows;
    for (const rows of this.#rowsOf.values()) rows.isRead = false;
  }

  /** Outputs from row `firstRow` on, until the next `begin`. */
  reader(firstRow: number): ReadOutput {
    return async (output, target) => {
      const { values, width } = await this.#readAll(output);
      target.set(values.subarray(firstRow * width, firstRow * width + target.length));
    };
  }

  /** Reads all rows of the step at once, since backends read from the start of an output. */
  async #readAll(output: string): Promise<Rows> {
    let rows = this.#rowsOf.get(output);
    if (rows === undefined) {
      rows = createRows(this.#executable.program, output);
      this.#rowsOf.set(output, rows);
    }
    if (!rows.isRead) {
      await this.#executable.read(output, rows.values.subarray(0, this.#numRows * rows.width));
      rows.isRead = true;
    }
    return rows;
  }
}

function createRows(program: Program, output: string): Rows {
  const tensor = program.outputs.get(output);
  if (tensor === undefined) throw new Error(`Winnow internal error: the program has no output ${output}`);
  const [maxRows, ...rest] = tensor.shape.map((dim) =>
    typeof dim === 'number' ? dim : (program.symbols.get(dim) as number),
  ) as [number, ...number[]];
  const width = rest.reduce((product, size) => product * size, 1);
  const values = tensor.dtype === 'i32' ? new Int32Array(maxRows * width) : new Float32Array(maxRows * width);
  return { values, width, isRead: false };
}
