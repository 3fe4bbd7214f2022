/** Defects in tokenizers and grammars. */
import type { Mutant } from '../mutant.ts';

export const textMutants: readonly Mutant[] = [
  {
    file: 'packages/tokenizers/src/algorithms/merge.ts',
    find: 'if (rank >= 0 && rank < bestRank) {',
    replace: 'if (rank >= 0 && rank <= bestRank) {',
    tests: ['src/algorithms/merge.test.ts', 'src/vocabulary/gguf-vocabulary.test.ts'],
  },
  {
    file: 'packages/tokenizers/src/algorithms/unigram.ts',
    find: 'const candidate = score + this.#scores[token]!;',
    replace: 'const candidate = this.#scores[token]!;',
    tests: [
      'src/tokenizer/vocabulary-tokenizer.test.ts',
      'src/vocabulary/gguf-vocabulary.test.ts',
      'src/gguf/from-gguf.test.ts',
    ],
  },
  {
    file: 'packages/tokenizers/src/algorithms/wordpiece.ts',
    find: 'if (ids.length === before && this.#unkId !== undefined) ids.push(this.#unkId);',
    replace: 'if (this.#unkId !== undefined && ids.length < before) ids.push(this.#unkId);',
    tests: [
      'src/tokenizer/vocabulary-tokenizer.test.ts',
      'src/vocabulary/gguf-vocabulary.test.ts',
      'src/gguf/from-gguf.test.ts',
      'src/json/from-json.test.ts',
    ],
  },
  {
    file: 'packages/tokenizers/src/json/added-tokens.ts',
    find: 'if (token.singleWord && !isWholeWord(text, at, end)) {',
    replace: 'if (!isWholeWord(text, at, end)) {',
    tests: ['src/json/from-json.test.ts'],
  },
  {
    file: 'packages/tokenizers/src/json/from-json.ts',
    find: 'if (addEos === false) suffix = suffix.filter((id) => id !== ids.eosId);',
    replace: '',
    tests: ['src/json/from-json.test.ts'],
  },
  {
    file: 'packages/tokenizers/src/text/pre-tokenizers.ts',
    find: "['viking', {",
    replace: "['viking gpt3-finnish', {",
    tests: ['src/text/pre-tokenizers.test.ts'],
  },
  {
    file: 'packages/grammar/src/network/left-recursion.ts',
    find: 'return node.min === 0 || canBeEmpty(node.item, isNullable, budget);',
    replace: 'return canBeEmpty(node.item, isNullable, budget);',
    tests: ['test/gbnf.test.ts'],
  },
  {
    file: 'packages/grammar/src/automaton/stack-sets.ts',
    find: 'if (depth > maxDepth) this',
    replace: 'if (depth > maxDepth * 100) this',
    tests: ['test/gbnf.test.ts'],
  },
  {
    file: 'packages/grammar/src/automaton/counter-states.ts',
    find: 'const room = counter.max - (count[counter.members.length] as number);',
    replace: 'const room = counter.max;',
    tests: ['test/gbnf.test.ts'],
  },
  {
    file: 'packages/grammar/src/tokens/text-runs.ts',
    find: 'numBefore.push(count);',
    replace: 'numBefore.push(0);',
    tests: ['test/tokens.test.ts'],
  },
  {
    file: 'packages/grammar/src/tokens/token-masks.ts',
    find: 'if (next !== expected) removeTokens(',
    replace: 'if (false) removeTokens(',
    tests: ['test/masks.test.ts'],
  },
  {
    file: 'packages/grammar/src/tokens/token-masks.ts',
    find: 'if (entry >= 0) states[depth + 1] = next;',
    replace: 'if (entry >= 0) states[depth + 1] = states[depth]!;',
    tests: ['test/masks.test.ts'],
  },
  {
    file: 'packages/grammar/src/tokens/free-text.ts',
    find: 'if (from !== checked && !isText(',
    replace: 'if (from === state && !isText(',
    tests: ['test/tokens.test.ts', 'test/masks.test.ts'],
  },
  {
    file: 'packages/grammar/src/tokens/free-text.ts',
    find: 'if (to === deadState || (to !== before',
    replace: 'if ((to !== before',
    tests: ['test/masks.test.ts'],
  },
  {
    file: 'packages/grammar/src/tokens/free-text.ts',
    find: 'leads.map((flag, byte) => flag & own[byte]!)',
    replace: 'leads',
    tests: ['test/masks.test.ts'],
  },
  {
    file: 'packages/grammar/src/network/writer.ts',
    find: 'let next = known.get(byte);',
    replace: 'let next = bytes.length > 9 ? undefined : [...known.values()][0];',
    tests: ['test/gbnf.test.ts'],
  },
  {
    file: 'packages/grammar/src/automaton/closure.ts',
    find: '(end === 1 || isAny(jumps, state) || isAny(calls, state) ? 0 : 1)',
    replace: '(end === 1 || isAny(jumps, state) ? 0 : 1)',
    tests: ['test/gbnf.test.ts'],
  },
  {
    file: 'packages/grammar/src/network/writer.ts',
    find: 'const hasEmpty = max !== 1 && this.#canBeEmpty(item);',
    replace: 'const hasEmpty = false;',
    tests: ['test/budgets.test.ts'],
  },
  {
    file: 'packages/grammar/src/schema/without.ts',
    find: 'isExclusive: !isExclusive, path });',
    replace: 'isExclusive, path });',
    tests: ['test/json-schema/negation.test.ts'],
  },
  {
    file: 'packages/grammar/src/schema/numbers.ts',
    find: 'const nearest = high !== undefined && high < 0n ? -high : 1n;',
    replace: 'const nearest = 1n;',
    tests: ['test/json-schema/conversion.test.ts', 'test/json-schema/refusals.test.ts'],
  },
  {
    file: 'packages/grammar/src/schema/resolve.ts',
    find: 'if (anchor !== undefined) return anchor;',
    replace: '',
    tests: ['test/json-schema/conversion.test.ts', 'test/json-schema/refusals.test.ts'],
  },
];
