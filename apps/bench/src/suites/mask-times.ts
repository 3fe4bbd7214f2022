/** The time of each mask over the valid instances of a test suite of schemas. */
import { createTokenTrie, type TokenGrammar } from '@winnow/grammar';
import type { Figure } from '../harness/figure.js';
import { casesOf, compile, jsonFiles, type SuiteCase, type Vocabulary } from './schema-suite.js';
import { pairsOfSigns, tokenize, vocabularyOf } from './word-vocabulary.js';

const suite = 'grammar';

/** Maximum number of measured tokens per instance. */
const maxTokens = 300;

/**
 * Cold masks use a new grammar per instance, although some of them were computed for its earlier tokens; warm masks are those
 * of a second pass.
 * @param rounds number of new grammars per instance; the shortest time of each mask counts
 */
export function* measureMasks(folder: string, vocabSize: number, rounds: number): Generator<Figure> {
  const trie = createTokenTrie(vocabularyOf(vocabSize, pairsOfSigns()));
  const vocabulary: Vocabulary = { trie, endToken: vocabSize - 1 };
  const cold: number[] = [];
  const warm: number[] = [];
  for (const file of jsonFiles(folder)) {
    for (const one of casesOf(file)) {
      for (const tokens of validTexts(one, vocabulary)) {
        const times = timesOf(one, vocabulary, tokens, rounds);
        cold.push(...times.cold);
        warm.push(...times.warm);
      }
    }
  }
  yield* quantiles(`${folder}: ${cold.length} cold masks, ${vocabSize} tokens`, cold);
  yield* quantiles(`${folder}: ${warm.length} warm masks, ${vocabSize} tokens`, warm);
}

function validTexts({ tests }: SuiteCase, { trie }: Vocabulary): readonly (readonly number[])[] {
  const valid = tests.filter((test) => test.valid);
  return valid.map(({ data }) => tokenize(JSON.stringify(data), trie).slice(0, maxTokens));
}

interface MaskTimes {
  readonly cold: readonly number[];
  readonly warm: readonly number[];
}

function timesOf(one: SuiteCase, vocabulary: Vocabulary, tokens: readonly number[], rounds: number): MaskTimes {
  let best: MaskTimes = { cold: [], warm: [] };
  for (let round = 0; round < rounds; round++) {
    const grammar = compile(one.schema, vocabulary);
    if (grammar === undefined) return best;
    const [cold, warm] = [passOf(grammar, tokens), passOf(grammar, tokens)];
    best = { cold: shortest(cold, best.cold), warm: shortest(warm, best.warm) };
  }
  return best;
}

function shortest(times: readonly number[], before: readonly number[]): readonly number[] {
  return times.map((ms, index) => Math.min(ms, before[index] ?? Infinity));
}

/** Milliseconds of each mask. */
function passOf(grammar: TokenGrammar, tokens: readonly number[]): readonly number[] {
  const matcher = grammar.start();
  const times: number[] = [];
  for (const token of tokens) {
    const startMs = performance.now();
    matcher.mask();
    times.push(performance.now() - startMs);
    if (!matcher.accept(token)) break;
  }
  return times;
}

function* quantiles(name: string, times: number[]): Generator<Figure> {
  times.sort((a, b) => a - b);
  const at = (quantile: number): number => times[Math.floor(quantile * (times.length - 1))] ?? 0;
  const parts: readonly (readonly [string, number])[] = [
    ['median', 0.5],
    ['p90', 0.9],
    ['p99', 0.99],
    ['maximum', 1],
  ];
  for (const [part, quantile] of parts) {
    const ratio = at(quantile) / at(0.5);
    yield {
      suite,
      case: `${name}, ${part}`,
      value: at(quantile),
      best: at(0),
      unit: 'ms',
      ratio,
      ratioOf: 'the median',
    };
  }
}
