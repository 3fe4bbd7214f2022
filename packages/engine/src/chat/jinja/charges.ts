/** What operations of the Jinja library cost, by the sizes of their operands. */
import type { StepBudget } from './budget.js';
import type { Node, Value } from './library.js';

/** Arguments of a filter or a method: positional ones, and keyword ones by name. */
export interface Arguments {
  readonly positional: readonly Value[];
  readonly keywords: ReadonlyMap<string, Value>;
}

/** Characters that one step copies, compares, searches, or converts one by one. */
const charactersPerStep = { copy: 1024, search: 128, convert: 32, build: 4 };

/** Copying a value without its members. */
export function copySteps({ value }: Value): number {
  if (typeof value === 'string') return Math.floor(value.length / charactersPerStep.copy);
  if (Array.isArray(value)) return value.length >> 3;
  return value instanceof Map ? value.size >> 3 : 0;
}

/**
 * Going through a value with all its members.
 * @param numSpaces written before a member, for each level
 * @returns length of the longest text
 */
export function spendDeep(budget: StepBudget, value: Value, stepFactor: number = 1, numSpaces: number = 0): number {
  let longest = 0;
  const spendText = ({ length }: string): void => {
    budget.spend((stepFactor * length) / charactersPerStep.search);
    longest = Math.max(longest, length);
  };
  const [pending, depths] = [[value], [1]];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    const { value: content } = next;
    const depth = depths.pop() as number;
    const push = (member: Value): void => {
      pending.push(member);
      depths.push(depth + 1);
    };
    budget.spend(stepFactor + (depth * numSpaces) / charactersPerStep.copy);
    if (typeof content === 'string') spendText(content);
    else if (Array.isArray(content)) (content as Value[]).forEach(push);
    else if (content instanceof Map) (content as Map<string, Value>).forEach(push);
    if (content instanceof Map) (content as Map<string, Value>).forEach((_, key) => spendText(key));
  }
  return longest;
}

/** Searching costs the product of the lengths at worst. */
export function searchSteps(text: string, wanted: string): number {
  const { search } = charactersPerStep;
  return wanted.length <= 16 ? text.length / search : (text.length / search) * (wanted.length / 4);
}

export function spendFilter(budget: StepBudget, name: unknown, operand: Value, args: Arguments): void {
  switch (name) {
    case 'tojson': {
      const isSlow = args.keywords.has('ensure_ascii') || args.keywords.has('sort_keys');
      spendDeep(budget, operand, isSlow ? 32 : 1, numberOf(args.keywords.get('indent')));
      return;
    }
    case 'string':
      spendDeep(budget, operand);
      return;
    case 'join':
      return spendJoin(budget, operand, args);
    case 'sort':
    case 'dictsort':
      return spendSort(budget, operand, args);
    case 'unique':
      return budget.spend(sizeOf(operand));
    case 'map':
    case 'selectattr':
    case 'rejectattr': {
      const path = [...args.positional, ...args.keywords.values()].reduce((sum, arg) => sum + textOf(arg).length, 0);
      return budget.spend(sizeOf(operand) * (1 + path / charactersPerStep.build));
    }
    default:
      if (typeof operand.value === 'string') spendTextMethod(budget, name, operand.value, args);
  }
}

/** A method of a text, or the filter of this name. */
export function spendTextMethod(budget: StepBudget, name: unknown, text: string, args: Arguments): void {
  const { copy, search, convert, build } = charactersPerStep;
  switch (name) {
    case 'upper':
    case 'lower':
      return budget.spend(text.length / convert);
    case 'title':
      return budget.spend(text.length / build);
    case 'indent': {
      const width = numberOf(args.positional[0] ?? args.keywords.get('width'));
      return budget.spend(text.length / search + countOf(text, '\n') * (1 + width / copy));
    }
    case 'replace': {
      const [wanted = '', replacement = ''] = args.positional.map(textOf);
      budget.spend(searchSteps(text, wanted) + wanted.length / build);
      return budget.spend(countOf(text, wanted) * (1 + replacement.length / copy));
    }
    case 'split': {
      const separator = textOf(args.positional[0]);
      if (separator === '') return budget.spend(text.length / build);
      budget.spend(searchSteps(text, separator));
      return budget.spend(countOf(text, separator));
    }
    default:
      return budget.spend(text.length / search);
  }
}

/** A text becomes a list of characters for some filters, and a container a text for others. */
export function spendConversion(budget: StepBudget, name: unknown, { type, value }: Value): void {
  if (typeof value === 'object' && value !== null && conversions.has(name)) spendDeep(budget, { type, value } as Value);
  if (typeof value === 'string' && !conversions.has(name)) budget.spend(value.length / charactersPerStep.search);
  if (typeof value === 'string' && (name === 'list' || name === 'map'))
    budget.spend(value.length / charactersPerStep.build);
}

const conversions = new Set<unknown>(['upper', 'lower', 'title', 'capitalize', 'trim', 'replace', 'indent', 'safe']);

export function spendOperator(budget: StepBudget, operator: string, left: Value, right: Value): void {
  const texts = [left, right].filter(({ value }) => typeof value === 'string');
  const containers = [left, right].filter(({ value }) => typeof value === 'object' && value !== null);
  if (containers.length === 2 && (operator === '==' || operator === '!=')) spendDeep(budget, left);
  if (operator === 'in' || operator === 'not in') {
    if (containers.includes(left)) spendDeep(budget, right);
    return budget.spend(texts.length === 2 ? searchSteps(textOf(right), textOf(left)) : sizeOf(right) / 4);
  }
  if (operator === '%' && typeof left.value === 'string') spendDeep(budget, right);
  if (operator === '*') {
    const [length, count] = [Math.max(sizeOf(left), sizeOf(right)), Math.max(numberOf(left), numberOf(right))];
    return budget.spend((length * count) / charactersPerStep.build);
  }
  // containers become texts beside texts, and when they are compared with other values
  const isWritten = operator === '~' || texts.length > 0 || containers.length === 1;
  if (isWritten) for (const container of containers) spendDeep(budget, container);
  for (const text of texts) budget.spend(textOf(text).length / charactersPerStep.copy);
}

/** The library goes through the body of a macro whenever it is declared. */
export function nodeCount(node: unknown): number {
  if (Array.isArray(node)) return node.reduce((sum: number, child) => sum + nodeCount(child), 0);
  if (node instanceof Map) return nodeCount([...node.keys(), ...node.values()]);
  if (typeof node !== 'object' || node === null) return 0;
  const known = nodeCounts.get(node as Node);
  if (known !== undefined) return known;
  const count = 1 + nodeCount(Object.values(node));
  nodeCounts.set(node as Node, count);
  return count;
}

const nodeCounts = new WeakMap<Node, number>();

function spendJoin(budget: StepBudget, operand: Value, { positional, keywords }: Arguments): void {
  const separator = textOf(positional[0] ?? keywords.get('separator'));
  if (typeof operand.value === 'string') budget.spend(operand.value.length / charactersPerStep.build);
  spendDeep(budget, operand);
  budget.spend((sizeOf(operand) * separator.length) / charactersPerStep.copy);
}

function spendSort(budget: StepBudget, operand: Value, { positional, keywords }: Arguments): void {
  const path = textOf(positional[2] ?? keywords.get('attribute')).length;
  const longest = spendDeep(budget, operand);
  const numCompared = sizeOf(operand) * Math.log2(1 + sizeOf(operand));
  budget.spend(numCompared * (1 + path / charactersPerStep.build + longest / charactersPerStep.convert));
}

function sizeOf({ value }: Value): number {
  if (typeof value === 'string' || Array.isArray(value)) return value.length;
  return value instanceof Map ? value.size : 0;
}

function textOf(value: Value | undefined): string {
  return typeof value?.value === 'string' ? value.value : '';
}

function numberOf(value: Value | undefined): number {
  return typeof value?.value === 'number' ? Math.max(0, value.value) : 0;
}

function countOf(text: string, wanted: string): number {
  if (wanted === '') return text.length + 1;
  let count = 0;
  for (let at = text.indexOf(wanted); at !== -1; at = text.indexOf(wanted, at + wanted.length)) count++;
  return count;
}
