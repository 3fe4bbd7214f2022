/** Defects in models with state-space layers. */
import type { Mutant } from '../mutant.ts';

export const stateSpaceMutants: readonly Mutant[] = [
  {
    file: 'packages/models/src/blocks/state-space.ts',
    find: 'values.fill(factors.c, (innerDim + numGroups * stateDim) * numTaps);',
    replace: 'values.fill(factors.c, innerDim * numTaps);',
    tests: ['packages/engine/test/goldens/architectures.test.ts'],
    only: 'falcon-h1',
  },
  {
    file: 'packages/models/src/blocks/state-space.ts',
    find: "const groups = b.reshape(x, ['T', numGroups, innerDim / numGroups]);",
    replace: "const groups = b.reshape(x, ['T', innerDim / numGroups, numGroups]);",
    tests: ['packages/engine/test/goldens/architectures.test.ts'],
    only: 'falcon-h1-norm',
  },
  {
    file: 'packages/models/src/architectures/mamba.ts',
    find: 'c: vectors(rank + stateDim),',
    replace: 'c: vectors(rank),',
    tests: ['packages/engine/test/goldens/architectures.test.ts'],
    only: 'mamba/',
  },
  {
    file: 'packages/convert/src/fold-factors.ts',
    find: 'if (isTied && logits !== embedding) weights',
    replace: 'if (isTied && logits === embedding) weights',
    tests: ['test/goldens.test.ts'],
    only: 'two factors',
  },
  {
    file: 'packages/engine/src/plan/attention-free.ts',
    find: "['kvCache.budget', 'none', budget],",
    replace: '',
    tests: ['test/plan/attention-free.test.ts'],
  },
];
