/** The regular expressions of tokenizer.json, after their translation to JavaScript with flag `u`, by @eslint-community/regexpp. */
import { RegExpParser, type AST } from '@eslint-community/regexpp';

/** The parts of an expression; `source` of a class is JavaScript's syntax for one character. */
export type Expression =
  | { readonly kind: 'class'; readonly source: string }
  | { readonly kind: 'sequence'; readonly items: readonly Expression[] }
  | { readonly kind: 'choice'; readonly alternatives: readonly Expression[] }
  | {
      readonly kind: 'repeat';
      readonly item: Expression;
      readonly min: number;
      readonly max: number;
      readonly lazy: boolean;
    }
  | { readonly kind: 'look'; readonly behind: boolean; readonly negated: boolean; readonly body: Expression };

const maxDepth = 64;
/** Largest minimum count of a repetition that the host's engine may rescan from every position of the text. */
const maxRescanned = 16;

/** @throws SyntaxError for syntax without a linear-time meaning (backreferences) or beyond the subset in use */
export function parseExpression(source: string): Expression {
  return choiceOf(new RegExpParser().parsePattern(source, 0, source.length, { unicode: true }), 0);
}

function choiceOf({ alternatives }: { readonly alternatives: readonly AST.Alternative[] }, depth: number): Expression {
  if (depth > maxDepth) throw new SyntaxError(`expected at most ${maxDepth} nested groups`);
  const choices = alternatives.map(({ elements }): Expression => {
    const items = elements.map((element) => elementOf(element, depth));
    return items.length === 1 ? items[0]! : { kind: 'sequence', items };
  });
  return choices.length === 1 ? choices[0]! : { kind: 'choice', alternatives: choices };
}

function elementOf(element: AST.Element, depth: number): Expression {
  switch (element.type) {
    case 'Character':
    case 'CharacterSet':
    case 'CharacterClass':
      return { kind: 'class', source: element.raw };
    case 'CapturingGroup':
      return choiceOf(element, depth + 1);
    case 'Group':
      if (element.modifiers !== null) break;
      return choiceOf(element, depth + 1);
    case 'Quantifier':
      return repeatOf(element, depth);
    case 'Assertion':
      if (element.kind !== 'lookahead' && element.kind !== 'lookbehind') break;
      return {
        kind: 'look',
        behind: element.kind === 'lookbehind',
        negated: element.negate,
        body: choiceOf(element, depth + 1),
      };
  }
  throw new SyntaxError(`expected characters, groups, repetitions and lookarounds, got ${element.raw}`);
}

function repeatOf({ element, min, max, greedy }: AST.Quantifier, depth: number): Expression {
  const item = elementOf(element, depth);
  if (max > 1 && isNullable(item)) {
    throw new SyntaxError(`expected a repeated part that matches at least one character, got ${element.raw}`);
  }
  return { kind: 'repeat', item, min, max, lazy: !greedy };
}

/** Whether an expression matches the empty text. */
function isNullable(expression: Expression): boolean {
  switch (expression.kind) {
    case 'class':
      return false;
    case 'look':
      return true;
    case 'sequence':
      return expression.items.every(isNullable);
    case 'choice':
      return expression.alternatives.some(isNullable);
    case 'repeat':
      return expression.min === 0 || isNullable(expression.item);
  }
}

/**
 * Whether the host's engine takes linear time: repeated parts are single characters, and only the end of an alternative
 * follows them, so that what they matched is never tried again, and a failed attempt is short.
 */
export function takesLinearTime(expression: Expression): boolean {
  if (expression.kind === 'choice') return expression.alternatives.every(takesLinearTime);
  const items = expression.kind === 'sequence' ? expression.items : [expression];
  return items.every(
    (item, index) =>
      item.kind === 'class' ||
      (item.kind === 'repeat' && item.item.kind === 'class' && item.min <= maxRescanned && index === items.length - 1),
  );
}
