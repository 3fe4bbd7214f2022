/** Reads the outputs of a step row by row: each sequence of a batch sees its own rows as if it had run alone. */
import type { Executable, Program } from '@winnow/ops';

/** Copies an output of the step that just ran, from the caller's first row on. */
export type ReadOutput = (output: string, target: Float32Array | Int32Array) => Promise<void>;

export interface StepOutputs {
  /** Call it after each run. @param numRows output rows of the step */
  begin(numRows: number): void;
  /** Outputs from row `firstRow` on, until the next `begin`. */
  reader(firstRow: number): ReadOutput;
}

interface Rows {
  readonly values: Float32Array | Int32Array; // [maxRows, width]
  readonly width: number;
  isRead: boolean;
}

export function createStepOutputs(executable: Executable): StepOutputs {
  const { program } = executable;
  const rowsOf = new Map<string, Rows>();
  let numRows = 0;

  /** All rows of the step at once: backends read from the start of an output. */
  async function readAll(output: string): Promise<Rows> {
    let rows = rowsOf.get(output);
    if (rows === undefined) {
      rows = createRows(program, output);
      rowsOf.set(output, rows);
    }
    if (!rows.isRead) {
      await executable.read(output, rows.values.subarray(0, numRows * rows.width));
      rows.isRead = true;
    }
    return rows;
  }

  return {
    begin(count): void {
      numRows = count;
      for (const rows of rowsOf.values()) rows.isRead = false;
    },
    reader: (firstRow) => async (output, target) => {
      const { values, width } = await readAll(output);
      target.set(values.subarray(firstRow * width, firstRow * width + target.length));
    },
  };
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
