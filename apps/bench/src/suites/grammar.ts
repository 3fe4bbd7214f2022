/** The cost of a grammar per token: masks of new states and of cached ones, and masks over a whole text. */
import { createTokenGrammar, createTokenTrie, jsonSchemaGrammar } from '@winnow/grammar';
import { milliseconds, type Figure } from '../harness/figure.js';
import { measure, type Contender } from '../harness/measure.js';
import { measureOptions, type Suite } from '../harness/suite.js';
import { measureMasks } from './mask-times.js';
import { measureSchemaSuite } from './schema-suite.js';
import { tokenize, vocabularyOf } from './word-vocabulary.js';

const suite = 'grammar';

const schema = {
  type: 'object',
  properties: {
    title: { type: 'string' },
    year: { type: 'integer', minimum: 1450, maximum: 2100 },
    kinds: { type: 'array', items: { enum: ['novel', 'poem', 'letter'] }, maxItems: 3 },
    author: {
      type: 'object',
      properties: { name: { type: 'string', maxLength: 80 }, born: { type: 'string', format: 'date' } },
      required: ['name', 'born'],
      additionalProperties: false,
    },
    summary: { type: 'string' },
  },
  required: ['title', 'year', 'kinds', 'author', 'summary'],
  additionalProperties: false,
} as const;

const summary = 'A man looks at the sea, which looks back at him; neither of them says much about the other. ';
const text = JSON.stringify({
  title: 'The Sea and the Captain',
  year: 1851,
  kinds: ['novel', 'letter'],
  author: { name: 'Ada Example', born: '1819-08-01' },
  summary: summary.repeat(4),
});

/** Masks over synthetic vocabularies: bytes, then words and subwords with realistic average lengths. */
export const grammar: Suite = {
  name: suite,
  summary:
    'time of token masks: JSON by a schema, vocabularies of 32K and 128K tokens; with --suite, a test suite of schemas',
  async *run({ options, say }) {
    if (options.suiteFolder !== undefined) {
      yield* measureSchemaSuite(options.suiteFolder, say);
      yield* measureMasks(options.suiteFolder, options.quick ? 4096 : 131_072, options.rounds ?? 1);
      return;
    }
    for (const size of options.quick ? [2048] : [32_768, 131_072]) {
      const trie = createTokenTrie(vocabularyOf(size));
      const tokens = tokenize(text, trie);
      const rules = jsonSchemaGrammar(schema);
      const fresh = (): ReturnType<typeof createTokenGrammar> =>
        createTokenGrammar({ grammar: rules, trie, endTokens: [size - 1] });
      const used = fresh();
      const write = (known: typeof used): void => {
        const matcher = known.start();
        for (const token of tokens) {
          if (matcher.mask().numTokens === 0 || !matcher.accept(token)) throw new Error('the text does not match');
        }
        if (!matcher.canEnd) throw new Error('the text is incomplete');
      };
      write(used);
      const contenders: Record<string, Contender> = {
        walk: { run: () => oneWalk(fresh, tokens) },
        first: { run: () => Promise.resolve(write(fresh())) },
        again: { run: () => Promise.resolve(write(used)) },
      };
      const timings = await measure(contenders, measureOptions(options, 9));
      const cases = [
        ['walk', 'one mask inside a string, new', 1],
        ['first', 'a token of a text, new grammar', tokens.length],
        ['again', 'a token of a text, known grammar', tokens.length],
      ] as const;
      const base = milliseconds(timings['first']!, tokens.length).value;
      for (const [key, name, count] of cases) {
        const rate = milliseconds(timings[key]!, count);
        const figure = { value: rate.value * 1000, best: rate.best * 1000, unit: 'us' };
        const ratioOf = 'a token of a text, new grammar';
        yield { suite, case: `${size} tokens: ${name}`, ...figure, ratio: rate.value / base, ratioOf } satisfies Figure;
      }
    }
  },
};

/** The first mask after the opening quote of a string, where nearly every token may follow. */
function oneWalk(fresh: () => ReturnType<typeof createTokenGrammar>, tokens: readonly number[]): Promise<number> {
  const matcher = fresh().start();
  for (const token of tokens.slice(0, numTokensToString)) matcher.accept(token);
  const startMs = performance.now();
  if (matcher.mask().numTokens < 100) throw new Error('expected to be inside a string');
  return Promise.resolve(performance.now() - startMs);
}

/** `{"title":"` and a letter or more. */
const numTokensToString = 12;
