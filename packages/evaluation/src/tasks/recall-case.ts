/** Generates recall tasks from a seed: needles in plain sentences, and three questions about them. */
import { checkOptions, createRng, type OptionNames, type Rng } from '@winnow/tensor';
import { plainSentences } from '../text/sentences.js';
import type { RankQuestion, RecallCase, RecallCaseOptions, RecallQuestion, TaskForm, TaskName } from './task-types.js';
import { distinctKeys, shuffle, similarKeys, wordings, type Wording } from './wording.js';
import { commonWords, frequentWords } from './word-tasks.js';

interface Draft {
  /** Facts in order of appearance. */
  readonly needles: readonly string[];
  readonly questions: readonly RecallQuestion[];
}

const numQuestions = 3;

const recallNames: OptionNames<RecallCaseOptions> = {
  task: true,
  form: true,
  length: true,
  seed: true,
  countTokens: true,
};

/** Deterministic: the same options give the same case. */
export function createRecallCase(options: RecallCaseOptions): RecallCase {
  checkOptions(options, recallNames);
  const { task, form, length, seed, countTokens } = options;
  const rng = createRng(seed);
  if (form === 'general' && task === 'common-words') return { task, ...commonWords(rng, options) };
  if (form === 'general' && task === 'frequent-words') return { task, ...frequentWords(rng, options) };
  const { needles, questions } = drafts[task](rng, wordings[form], options);
  const numNeedleTokens = countTokens(` ${needles.join(' ')}`);
  const sentences = plainSentences(rng, Math.max(0, length - numNeedleTokens), countTokens);
  return { task, context: withNeedles(rng, sentences, needles), questions };
}

/** Whether a question ranks many words. */
export function isRankQuestion(question: RecallQuestion | RankQuestion): question is RankQuestion {
  return 'right' in question;
}

/** Places needles in order, each at a random position within its own part of the text. */
function withNeedles(rng: Rng, sentences: readonly string[], needles: readonly string[]): string {
  const places = needles.map((_, i) => ((i + rng.nextFloat()) * sentences.length) / needles.length);
  const text: string[] = [];
  let next = 0;
  for (let i = 0; i <= sentences.length; i++) {
    for (; next < needles.length && (places[next] < i + 1 || i === sentences.length); next++) text.push(needles[next]);
    if (i < sentences.length) text.push(sentences[i]);
  }
  return text.join(' ');
}

type DraftOf = (rng: Rng, wording: Wording, options: RecallCaseOptions) => Draft;

const drafts: Readonly<Record<TaskName, DraftOf>> = {
  /** One key, queried three times. */
  needle(rng, wording, { form }) {
    const [key] = distinctKeys(rng, form, 1);
    const value = wording.value(rng);
    const question = { prompt: wording.question(key), answer: ` ${value}` };
    return { needles: [wording.fact(key, value)], questions: Array.from({ length: numQuestions }, () => question) };
  },

  /** Eight keys, three of which are queried. */
  'multi-key'(rng, wording, { form }) {
    return about(rng, wording, distinctKeys(rng, form, 8));
  },

  /** One key with three values, each queried by its beginning or by its position. */
  'multi-value'(rng, wording, { form }) {
    const [key] = distinctKeys(rng, form, 1);
    const facts = ['first', 'second', 'third'].map((ordinal, i) => ({
      key: form === 'codes' ? key : `${key} (${ordinal})`,
      value: `${i + 3 * rng.nextInt(3)}${wording.value(rng).slice(1)}`, // no two have the same beginning
    }));
    const numGiven = form === 'codes' ? 2 : 0;
    return {
      needles: facts.map((fact) => wording.fact(fact.key, fact.value)),
      questions: shuffle(rng, facts).map((fact) => ({
        prompt: `${wording.question(fact.key)}${numGiven === 0 ? '' : ` ${fact.value.slice(0, numGiven)}`}`,
        answer: `${numGiven === 0 ? ' ' : ''}${fact.value.slice(numGiven)}`,
      })),
    };
  },

  /** Four keys; one question asks for three, and the answer lists them. */
  'multi-query'(rng, wording, { form }) {
    const keys = distinctKeys(rng, form, 4);
    const { needles, questions } = about(rng, wording, keys);
    return {
      needles,
      questions: questions.map(({ prompt, answer }, i) =>
        i === 0 ? { prompt, answer } : { prompt: wording.next(keyOfPrompt(keys, prompt)), answer },
      ),
    };
  },

  /** A sentence unlike any other. */
  passkey(rng, _wording, { form }) {
    const value = wordings.codes.value(rng);
    const [fact, what] =
      form === 'codes'
        ? [`The pass key is ${value}. Remember it. ${value} is the pass key.`, 'What is the pass key? The pass key is']
        : [
            `The pass key is ${value}. Remember it. ${value} is the pass key.`,
            'What is the pass key mentioned in the text above? The pass key is',
          ];
    const prompts = [`\n\n${what}`, `\n\nOnce more: ${what}`, `\n\nAgain: ${what}`];
    return { needles: [fact], questions: prompts.map((prompt) => ({ prompt, answer: ` ${value}` })) };
  },

  /** A chain of two hops, where a value is the next key, and a distractor chain; queried link by link. */
  'variable-tracking'(rng, wording, { form }) {
    const chains = distinctKeys(rng, form, 2).map((key) => [
      key,
      ...Array.from({ length: numQuestions }, () => wording.value(rng)),
    ]);
    const needles = Array.from({ length: numQuestions }, (_, link) =>
      shuffle(rng, chains).map((chain) => wording.fact(chain[link], chain[link + 1])),
    ).flat();
    const [chain] = chains;
    const questions = Array.from({ length: numQuestions }, (_, link) => ({
      prompt: link === 0 ? wording.question(chain[0]) : wording.next(chain[link]),
      answer: ` ${chain[link + 1]}`,
    }));
    return { needles, questions };
  },

  /** One value of a key occurs often, others once. */
  'common-words': (rng, wording, { form }) => contradictions(rng, wording, form, [6, 1, 1, 1, 1]),

  /** Values of a key by Zipf's law with exponent 2. */
  'frequent-words': (rng, wording, { form }) => contradictions(rng, wording, form, [9, 2, 1]),

  /** Keys that nearly equal the queried one. */
  'hard-negatives'(rng, wording, { form }) {
    return about(rng, wording, similarKeys(rng, form));
  },
};

/** A fact for each key, and questions about three of them in random order. */
function about(rng: Rng, wording: Wording, keys: readonly string[]): Draft {
  const facts = keys.map((key) => ({ key, value: wording.value(rng) }));
  const asked = shuffle(rng, facts).slice(0, numQuestions);
  return {
    needles: facts.map(({ key, value }) => wording.fact(key, value)),
    questions: asked.map(({ key, value }) => ({ prompt: wording.question(key), answer: ` ${value}` })),
  };
}

/** Values with given numbers of occurrences, shuffled; the first is the answer. For models that cannot count words. */
function contradictions(rng: Rng, wording: Wording, form: TaskForm, counts: readonly number[]): Draft {
  const [key] = distinctKeys(rng, form, 1);
  const values = counts.map((_, i) => `${(i + rng.nextInt(2) * 5) % 10}${wording.value(rng).slice(1)}`);
  const facts = values.flatMap((value, i) => Array.from({ length: counts[i] }, () => value));
  const question = { prompt: wording.question(key), answer: ` ${values[0]}` };
  return {
    needles: shuffle(rng, facts).map((value) => wording.fact(key, value)),
    questions: Array.from({ length: numQuestions }, () => question),
  };
}

function keyOfPrompt(keys: readonly string[], prompt: string): string {
  return keys.find((key) => prompt.includes(key)) ?? keys[0];
}
