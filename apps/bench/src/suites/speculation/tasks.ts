/** The tasks of the demo model. */
import type { GenerateOptions } from '@winnow/engine';

/** The number of digits in the output that were copied correctly from the prompt. */
export interface Copied {
  readonly numRight: number;
  readonly numCopied: number;
}

export interface Task {
  readonly name: string;
  readonly prompt: string;
  readonly options: GenerateOptions;
  readonly countRight?: (text: string) => Copied;
}

/** Facts of the form that the demo model was trained to look up; it confuses longer lists. */
const codes: readonly (readonly [name: string, code: string])[] = [
  ['Alice', '31407'],
  ['Peter', '86259'],
  ['Thomas', '50931'],
  ['Julia', '72684'],
  ['Martin', '19375'],
  ['Helen', '64028'],
  ['Arthur', '27816'],
  ['Clara', '95140'],
];
/** Enough for 512 tokens. */
const numLists = 5;

const verse =
  'The old man looked at the sea and said that he had never seen such a storm before. "We must go home," said the boy, "or we shall ' +
  'be lost." They took the little boat and the long rope and walked up the hill to the house of the captain, who gave them bread. ';

export const tasks: readonly Task[] = [
  {
    name: 'copying',
    prompt: codes.map(([name, code]) => `The code of ${name} is ${code}.`).join(' '),
    options: { grammar: listGrammar() },
    countRight,
  },
  { name: 'repetition', prompt: verse.repeat(3), options: {} },
  {
    name: 'new text',
    prompt: 'The captain looked at the sea and said, ',
    options: { temperature: 0.8, seed: 1 },
  },
];

/** A grammar for the list of the prompt, repeated several times. It fixes words and names; the model copies the digits. */
function listGrammar(): string {
  const facts = codes.map(([name]) => `" The code of ${name} is " code "."`).join(' ');
  return `root ::= ${'list '.repeat(numLists)}\nlist ::= ${facts}\ncode ::= [0-9] [0-9] [0-9] [0-9] [0-9]`;
}

function countRight(text: string): Copied {
  const found = [...text.matchAll(/is (\d{5})\./g)].map((match) => match[1] as string);
  const right = found.map((code, index) =>
    [...code].filter((digit, at) => digit === codes[index % codes.length]?.[1][at]),
  );
  return { numRight: right.flat().length, numCopied: 5 * found.length };
}
