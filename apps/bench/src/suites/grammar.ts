/** The cost of a grammar per token: masks of new states, of cached ones, and over a whole text. */
import { createTokenGrammar, createTokenTrie, jsonSchemaGrammar, type TokenTrie } from '@winnow/grammar';
import { createRng } from '@winnow/tensor';
import { milliseconds, type Figure } from '../harness/figure.js';
import { measure, type Contender } from '../harness/measure.js';
import { measureOptions, type Suite } from '../harness/suite.js';
import { measureSchemaSuite } from './schema-suite.js';

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

/** Greedy longest-match tokens, as a model would usually generate them. */
function tokenize(source: string, trie: TokenTrie): number[] {
  const bytes = new TextEncoder().encode(source);
  const ids: number[] = [];
  for (let at = 0; at < bytes.length;) {
    let best = -1;
    let end = at;
    for (let node = 0, last = trie.numNodes, i = at; node < last && i < bytes.length;) {
      if (trie.bytes[node] !== bytes[i]) {
        node = trie.ends[node]!;
        continue;
      }
      i++;
      if (trie.firstTokens[node]! < trie.firstTokens[node + 1]!) {
        best = trie.tokens[trie.firstTokens[node]!]!;
        end = i;
      }
      last = trie.ends[node]!;
      node++;
    }
    if (best < 0) throw new Error('the vocabulary has no token for a byte');
    ids.push(best);
    at = end;
  }
  return ids;
}

/** The last id is the end token, which has no bytes. */
function vocabularyOf(size: number): { vocabSize: number; tokenBytes(id: number): Uint8Array | undefined } {
  const rng = createRng(7);
  const pick = (from: readonly string[]): string => from[Math.floor(rng.nextFloat() * from.length)]!;
  const onsets = ['b', 'c', 'd', 'f', 'g', 'h', 'l', 'm', 'n', 'p', 'r', 's', 't', 'st', 'tr', 'th', 'ch', 'w', ''];
  const vowels = ['a', 'e', 'i', 'o', 'u', 'ea', 'ou', 'é'];
  const codas = ['', '', 'n', 'r', 's', 't', 'ng', 'l', 'nd', 'st'];
  const signs = [
    '"',
    '":',
    '": ',
    '",',
    '", "',
    '{"',
    '"}',
    '[',
    ']',
    '],',
    '}}',
    ', ',
    '. ',
    '://',
    '0',
    '19',
    '18',
    '20',
    '\n  ',
  ];
  const texts = new Set<string>(signs);
  for (let numSyllables = 1; texts.size < size - 257; numSyllables = 1 + Math.floor(rng.nextFloat() * 3)) {
    let word = pick(['', ' ', ' ', ' ']);
    for (let i = 0; i < numSyllables; i++) word += pick(onsets) + pick(vowels) + pick(codas);
    texts.add(rng.nextFloat() < 0.15 ? word.toUpperCase() : word);
  }
  const all = [...texts].slice(0, size - 257).map((word) => new TextEncoder().encode(word));
  return {
    vocabSize: size,
    tokenBytes: (id) => (id < 256 ? Uint8Array.of(id) : id === size - 1 ? undefined : all[id - 256]),
  };
}
