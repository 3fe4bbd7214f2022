/** Defects in attention policies and sparse feed-forward blocks. */
import type { Mutant } from '../mutant.ts';

export const sparsityMutants: readonly Mutant[] = [
  {
    file: 'packages/sparse-attention/src/policy/fields.ts',
    find: 'return policySchemas.find(({ kind, aliases }) => kind === name || aliases.includes(name));',
    replace: 'return policySchemas.find(({ kind }) => kind === name);',
    tests: ['src/policy/language.test.ts'],
  },
  {
    file: 'packages/sparse-attention/src/policy/salience-gate.ts',
    find: 'this.#keep[this.#length++] = salience >= this.#threshold ? 1 : 0;',
    replace: 'this.#keep[this.#length++] = salience > this.#threshold ? 1 : 0;',
    tests: ['src/policy/salience-gate.test.ts'],
  },
  {
    file: 'packages/sparse-attention/src/quality/metrics.ts',
    find: 'for (let i = 0; i < best.length; i++) if (visited.has(best[i])) found += 1;',
    replace: 'for (let i = 1; i < best.length; i++) if (visited.has(best[i])) found += 1;',
    tests: ['src/quality/quality.test.ts'],
  },
  {
    file: 'packages/sparse-inference/src/cache/activity.ts',
    find: 'this.#mean[item] = this.of(item) + (1 - keep);',
    replace: 'this.#mean[item] = (1 - keep);',
    tests: [
      'src/cache/neuron-cache.test.ts',
      'src/cache/neuron-cache.property.test.ts',
      'src/cache/plan-tiers.test.ts',
    ],
  },
  {
    file: 'packages/sparse-inference/src/cache/item-layout.ts',
    find: 'spanBytes: Math.max(...ends),',
    replace: 'spanBytes: Math.min(...ends),',
    tests: ['src/cache/neuron-cache.test.ts', 'src/cache/neuron-cache.property.test.ts'],
  },
  {
    file: 'packages/sparse-inference/src/calibration/options.ts',
    find: 'JSON.stringify({ config, predictor, groupTokens, hash',
    replace: 'JSON.stringify({ config, groupTokens, hash',
    tests: ['src/calibration/calibrate.test.ts'],
  },
  {
    file: 'packages/sparse-inference/src/calibration/checkpoint.ts',
    find: "group: position.integer('group', 0, 2 ** 40) };",
    replace: "group: position.integer('group', 0, 2 ** 40) + 1 };",
    tests: ['src/calibration/calibrate.test.ts'],
  },
  {
    file: 'packages/sparse-attention/src/policy/tuned-policy.ts',
    find: 'if (modelHash !== undefined && ownHash !== modelHash) {',
    replace: 'if (modelHash === undefined && ownHash !== modelHash) {',
    tests: ['src/policy/tuned-policy.test.ts'],
  },
  {
    file: 'packages/sparse-attention/src/policy/tuned-policy.ts',
    find: 'last.last === layer - 1 &&',
    replace: 'last.last < layer &&',
    tests: ['src/policy/tuned-policy.test.ts'],
  },
  {
    file: 'packages/evaluation/src/tune/allocate.ts',
    find: 'at -= cellsOf(',
    replace: 'at -= 0 * cellsOf(',
    tests: ['src/tune/tune-attention.test.ts'],
  },
  {
    file: 'packages/evaluation/src/tune/checkpoint.ts',
    find: 'if (known !== undefined) return known as T;',
    replace: '',
    tests: ['src/tune/tune-attention.test.ts'],
  },
  {
    file: 'packages/evaluation/src/tune/front.ts',
    find: 'divergences[layer] = candidate.divergences[layer] as number;',
    replace: 'divergences[at + 1] = candidate.divergences[layer] as number;',
    tests: ['src/tune/tune-attention.test.ts'],
  },
  {
    file: 'packages/evaluation/src/tune/front.ts',
    find: 'await add(allocation);',
    replace: '',
    tests: ['src/tune/tune-attention.test.ts'],
    only: 'time: is no worse',
  },
  {
    file: 'packages/evaluation/src/tune/select.ts',
    find: 'if ((await excessOf(bench, rival, budget)) <= 1) return rival;',
    replace: '',
    tests: ['src/tune/tune-attention.test.ts'],
    only: 'on held-out text',
  },
  {
    file: 'packages/evaluation/src/tune/select.ts',
    find: '?? pairs.find(isDense)',
    replace: '',
    tests: ['src/tune/tune-attention.test.ts'],
    only: 'is dense where nothing',
  },
  {
    file: 'packages/engine/src/plan/auto-attention.ts',
    find: 'if (policyFile.modelHash === modelHash) return',
    replace: 'if (policyFile.modelHash !== undefined) return',
    tests: ['test/plan/auto-attention.test.ts'],
  },
  {
    file: 'packages/engine/src/generation/logprobs.ts',
    find: "const phase = begin < numPrefilled ? 'prefill' : 'decode';",
    replace: "const phase = begin <= numPrefilled ? 'prefill' : 'decode';",
    tests: ['test/plan/auto-attention.test.ts'],
  },
  {
    file: 'packages/evaluation/src/tune/candidates.ts',
    find: "if (typeof measured === 'string') refusals.push(measured);",
    replace: '',
    tests: ['src/tune/tune-attention.test.ts'],
    only: 'no layer can have',
  },
];
