/** The qgemm and qgemv microkernels that are generated, for groups of four interleaved rows. */
import { file, kernel, type Lines } from './emit.ts';
import { blockTimesTokens, type BlockTimesTokens } from './qgemm.ts';
import { q4, q8, q8SignMagnitude, qgemv, superBlockQ4K, superBlockQ6K, superBlocks } from './qgemv.ts';

const blocks: readonly BlockTimesTokens[] = [
  { name: 'qgemmScaled', doc: 'A scale per row.', scales: 'one', dot: 'direct' },
  { name: 'qgemmOffset', doc: 'A scale and an offset per row.', scales: 'offset', dot: 'direct' },
  { name: 'qgemmHalves', doc: 'A scale for each half of the columns.', scales: 'halves', dot: 'direct' },
  {
    name: 'qgemmScaledMaddubs',
    doc: 'A scale per row, codes of four bits by maddubs: `16 * 15 * 127 < 2^15`.',
    ...{ scales: 'one', dot: 'pairs' },
  },
  {
    name: 'qgemmOffsetMaddubs',
    doc: 'A scale and an offset per row, codes of five bits by maddubs: `8 * 31 * 127 < 2^15`.',
    ...{ scales: 'offset', dot: 'pairs' },
  },
  {
    name: 'qgemmHalvesMaddubs',
    doc: 'A scale for each half of the columns, codes of six bits by maddubs: `4 * 63 * 127 < 2^15`.',
    ...{ scales: 'halves', dot: 'pairs' },
  },
  {
    name: 'qgemmSignMagnitude',
    doc: 'A scale per row, codes of eight bits, activations as magnitudes and signs.',
    ...{ scales: 'one', dot: 'signMagnitude' },
  },
];

/** Which super-block of a k-quant. */
function superBlock(): Lines {
  const formats = ['Q4_K', 'Q5_K'] as const;
  return kernel({
    name: 'superBlock<T>',
    doc: 'Four rows of a super-block of a k-quant.',
    parameters: ['dtype: i32', 'at: usize', 'x: usize', 'meta: usize', 'sums: v128'],
    returns: 'v128',
    body: [
      ...formats.map(
        (name) => `if (dtype === ${name}) return superBlock${name.replace('_', '')}<T>(at, x, meta, sums);`,
      ),
      'return superBlockQ6K<T>(at, x, meta, sums);',
    ],
  });
}

export const qgemmFiles: ReadonlyMap<string, string> = new Map([
  [
    'gemm/qgemm.generated.ts',
    file(
      'qgemm microkernels: one block of four interleaved rows times many tokens.',
      [
        "import { onePairs } from '../simd/constants';",
        "import { fma } from '../simd/vector';",
        "import { META_MINUS_32, META_MINUS_8, META_START_Q8, META_SUM } from '../quant/quantize-activations';",
        "import { addPairs, dot, dotSignMagnitude, pairs } from './int8-dot';",
      ],
      blocks.map(blockTimesTokens),
    ),
  ],
  [
    'gemm/qgemv.generated.ts',
    file(
      'qgemv microkernels: one token times groups of four interleaved rows.',
      [
        "import { Q4_K, Q5_K } from '../quant/dequantize';",
        "import { META_BYTES, META_MINUS_32, META_MINUS_8, META_START_Q8 } from '../quant/quantize-activations';",
        "import { byteMask, halfFactor, halfMask, nibbleMask, onePairs, pairMask } from '../simd/constants';",
        "import { fma, highNibbles, lowNibbles } from '../simd/vector';",
        "import { dot, dotNibbles, dotSignMagnitude, dotTwo } from './int8-dot';",
        "import { addProducts, addScaled, addSubBlocks, addSuperBlock, joinChains, scales4, scalesK, superBlockBytes, superBlockQ5K } from './k-quants';",
      ],
      [
        superBlockQ4K(),
        superBlockQ6K(),
        superBlock(),
        ...[q8, q8SignMagnitude, q4].flatMap((format) => [qgemv(format, 1), qgemv(format, 8)]),
        ...[qgemv(superBlocks, 1), qgemv(superBlocks, 4)],
      ],
    ),
  ],
]);
