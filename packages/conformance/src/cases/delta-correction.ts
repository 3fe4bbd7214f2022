import type { Rng } from '@winnow/tensor';
import type { Arithmetic } from '../arithmetic.js';
import type { KernelCase, KernelData } from '../kernel-case.js';
import { attentionAttributes, createAttention, type AttentionSetup } from '../setups/attention-setup.js';
import { attended, integers } from '../setups/sparse-setup.js';
import { chunkOf, severalSequences, sparseSetup, sparseSetups } from '../setups/sparse-setups.js';
import { close, gaussian, ints, numbersOf } from '../values.js';

interface Correction {
  readonly delta: number;
  /** State rows that sequences start from and write; default: fresh, and the index of the sequence. */
  readonly from?: readonly number[];
  readonly to?: readonly number[];
  /** Position of the anchor in the state of each row, -1 for none. */
  readonly anchors?: readonly number[];
}

const numRows = 4;

function correctionCase(setup: AttentionSetup, correction: Correction): KernelCase {
  const { delta, from = freshRows(setup), anchors = [] } = correction;
  return {
    op: 'delta-correction',
    name: `${setup.name}, delta ${delta}, from ${from.join(' ')}${anchors.length > 0 ? `, anchors ${anchors.join(' ')}` : ''}`,
    dtypes: { keys: setup.keyDType, values: setup.valueDType },
    attributes: { ...attentionAttributes(setup), delta },
    create: (rng, arithmetic) => createData(setup, correction, rng, arithmetic),
  };
}

function freshRows({ contextLengths }: AttentionSetup): readonly number[] {
  return contextLengths.map(() => -1);
}

/** A value and the bound of its error. */
type Bounded = readonly [number, number];

function createData(setup: AttentionSetup, correction: Correction, rng: Rng, arithmetic: Arithmetic): KernelData {
  const { numHeads, valueDim, queries, contextLengths } = setup;
  const { delta, from = freshRows(setup), to = contextLengths.map((_, sequence) => sequence) } = correction;
  const anchors = Array.from({ length: numRows }, (_, row) => correction.anchors?.[row] ?? -1);
  const problem = createAttention(setup, rng, arithmetic);
  const x = gaussian(rng, [queries.length, numHeads, valueDim], 1, 0);
  const xs = numbersOf(x);
  const difference = gaussian(rng, [numRows, numHeads, valueDim]);
  const rowLength = numHeads * valueDim;
  const before = numbersOf(difference);
  const after: Bounded[] = Array.from(before, (value) => [value, 0]);
  const anchorsAfter = anchors.map((position) => position + 1);
  const y: Bounded[] = [];
  const pairs: number[] = [];
  for (const [sequence, row] of from.entries()) {
    const tokens = queries.flatMap(([owner], index) => (owner === sequence ? [index] : []));
    if (tokens.length === 0) continue;
    const isFresh = row < 0 || queries[tokens[0]][1] === 0;
    let anchor = isFresh ? -1 : anchors[row];
    let shift: Bounded[] = Array.from({ length: rowLength }, (_, i) => [
      anchor < 0 ? 0 : before[row * rowLength + i],
      0,
    ]);
    for (const query of tokens) {
      const position = queries[query][1];
      const firstOfBlock = Math.floor(position / delta) * delta;
      const ownX = xs.subarray(query * rowLength, (query + 1) * rowLength);
      if (anchor >= firstOfBlock && anchor <= position) {
        y.push(...Array.from(ownX, (value, i) => sum([value, 0], shift[i], arithmetic)));
        pairs.push(0);
        continue;
      }
      anchor = position;
      const keys = Array.from({ length: numHeads }, (_, head) => problem.seen(query, head));
      const dense = attended(keys, valueDim, arithmetic);
      const exact = Array.from(dense.values, (value, i): Bounded => [value, dense.bounds[i]]);
      shift = exact.map((value, i) => sum(value, [-ownX[i], 0], arithmetic));
      y.push(...exact);
      pairs.push(keys[0].length);
    }
    anchorsAfter[to[sequence]] = anchor + 1;
    for (let i = 0; i < rowLength; i++) after[to[sequence] * rowLength + i] = shift[i];
  }
  return {
    inputs: { ...problem.inputs, x, stateFrom: ints([from.length], from), stateTo: ints([to.length], to) },
    updated: {
      anchor: ints(
        [numRows, 1, 1],
        anchors.map((position) => position + 1),
      ),
      difference,
    },
    expected: {
      anchor: { kind: 'bytes', bytes: ints([numRows, 1, 1], anchorsAfter).bytes },
      difference: close(after.length, (i) => after[i]),
      y: close(y.length, (i) => y[i]),
      pairs: integers(pairs),
    },
  };
}

/** The sum in float32 of two numbers with errors. */
function sum([a, aError]: Bounded, [b, bError]: Bounded, { unit, tiny }: Arithmetic): Bounded {
  const errors = aError + bError;
  return [a + b, errors + unit * (Math.abs(a + b) + errors) + tiny];
}

const shuffled = { ...severalSequences, isShuffled: true };
const prefill = sparseSetup('prefill', { contextLengths: [90], queries: chunkOf(90) });
const rest = sparseSetup('second chunk', { contextLengths: [90], queries: chunkOf(90, 37) });
const two = { contextLengths: [70, 0, 50], queries: [...chunkOf(70, 3), ...chunkOf(50, 0, 2)] };

export const deltaCorrectionCases: readonly KernelCase[] = [
  ...sparseSetups.map((setup) => correctionCase(setup, { delta: 3 })),
  ...[1, 2, 16, 64, 1000].map((delta) => correctionCase(prefill, { delta })),
  correctionCase(sparseSetup('any order', shuffled), { delta: 4 }),
  // states: of the same block, of an earlier one, of a later token, of none; in place and to another row
  ...[36, 32, 31, 39, -1].map((anchor) =>
    correctionCase(rest, { delta: 16, from: [1], to: [anchor === 32 ? 1 : 2], anchors: [-1, anchor] }),
  ),
  correctionCase(sparseSetup('no anchor', { queries: chunkOf(45, 41) }), { delta: 16, from: [0], anchors: [33] }),
  correctionCase(sparseSetup('starts over', { contextLengths: [20], queries: chunkOf(20) }), {
    ...{ delta: 8, from: [2], anchors: [-1, -1, 0] },
  }),
  correctionCase(sparseSetup('two sequences', two), { delta: 8, from: [3, -1, -1], anchors: [-1, -1, -1, 1] }),
  // several tiles of anchors per KV head
  correctionCase(sparseSetup('20 heads on 2 KV heads', { ...prefill, numHeads: 20 }), { delta: 5 }),
  correctionCase(sparseSetup('70 heads on 1 KV head', { ...rest, numHeads: 70, numKvHeads: 1 }), { delta: 20 }),
];
