/**
 * Random graphs over small integers: sums, ReLU, row ranges and gathers, with values read soon or much later. Nothing
 * rounds, so every output is exact, and a value that is overwritten too early is detected.
 */
import { ProgramBuilder, type ProgramTensor } from '@winnow/ops';
import type { Rng } from '@winnow/tensor';
import { exact, rngOf } from '../values.js';
import type { ProgramCase } from './program-case.js';

const width = 20;
const capacity = 9;
const numRows = 12;
/** Values stay below 2^24, where float32 holds every integer. */
const largest = 2 ** 23;

interface Node {
  readonly tensor: ProgramTensor;
  /** The values for the rows of a step. */
  readonly evaluate: (tokens: readonly number[]) => number[];
  readonly magnitude: number;
}

function randomGraph(seed: number): ProgramCase {
  return {
    name: `graph ${seed} over integers`,
    create() {
      const rng = rngOf(`integer graph ${seed}`);
      const values = Array.from({ length: numRows * width }, () => rng.nextInt(21) - 10);
      const b = new ProgramBuilder({ T: capacity });
      const table = b.external('table', 'weights', 'f32', [numRows, width]);
      const tokens = b.scalar('tokens', ['T']);
      const start: Node = {
        tensor: b.activation('embedding-lookup', { table, tokens }),
        evaluate: (rows) => rows.flatMap((row) => values.slice(row * width, (row + 1) * width)),
        magnitude: 10,
      };
      const nodes = [start];
      for (let i = 0; i < 10 + seed * 3; i++) nodes.push(grow(b, nodes, rng));
      const outputs = new Map<string, Node>();
      for (const [index, node] of nodes.entries()) {
        if (index < nodes.length - 1 && rng.nextInt(8) !== 0) continue;
        outputs.set(`node ${index}`, node);
        b.output(`node ${index}`, node.tensor);
      }
      const steps = [capacity, 1, 0, 4].map((numTokens) => {
        const rows = Array.from({ length: numTokens }, () => rng.nextInt(numRows));
        return {
          scalars: { T: [numTokens], tokens: rows },
          expected: Object.fromEntries([...outputs].map(([name, { evaluate }]) => [name, exact(evaluate(rows))])),
        };
      });
      const contents = new Map([['table', new Uint8Array(Float32Array.from(values).buffer)]]);
      return { program: b.build(), contents, steps };
    },
  };
}

function grow(b: ProgramBuilder, nodes: readonly Node[], rng: Rng): Node {
  const pick = (): Node => nodes[rng.nextInt(3) === 0 ? rng.nextInt(nodes.length) : nodes.length - 1];
  const [left, right] = [pick(), pick()];
  if (rng.nextInt(3) === 0 || left.magnitude + right.magnitude > largest) {
    const tensor = b.activation('activation', { x: b.reshape(left.tensor, ['T', 4, width / 4]) }, { kind: 'relu' });
    return {
      tensor: b.reshape(tensor, ['T', width]),
      evaluate: memoised((rows) => left.evaluate(rows).map((value) => Math.max(0, value))),
      magnitude: left.magnitude,
    };
  }
  return {
    tensor: b.activation('add', { a: left.tensor, b: right.tensor }),
    evaluate: memoised((rows) => {
      const addends = right.evaluate(rows);
      return left.evaluate(rows).map((value, i) => value + addends[i]);
    }),
    magnitude: left.magnitude + right.magnitude,
  };
}

/** Keeps the values of the last rows: graphs share nodes, and a plain recursion would take exponential time. */
function memoised(evaluate: Node['evaluate']): Node['evaluate'] {
  let last: { rows: readonly number[]; values: number[] } | undefined;
  return (rows) => {
    if (last?.rows !== rows) last = { rows, values: evaluate(rows) };
    return last.values;
  };
}

export const integerGraphCases: readonly ProgramCase[] = Array.from({ length: 24 }, (_, seed) => randomGraph(seed));
