/**
 * Evaluates Jinja templates in slices and within a budget, since templates are part of models, which may be hostile.
 * Statements are evaluated here, with pauses between expressions; the library evaluates expressions.
 */
import { finish, type Sliced } from '@winnow/tensor';
import type { StepBudget } from './budget.js';
import {
  copySteps,
  nodeCount,
  spendConversion,
  spendDeep,
  spendFilter,
  spendOperator,
  spendTextMethod,
  type Arguments,
} from './charges.js';
import {
  ArrayValue,
  BooleanValue,
  Environment,
  IntegerValue,
  Interpreter,
  ObjectValue,
  StringValue,
  UndefinedValue,
  held,
  type Node,
  type Value,
} from './library.js';
import { filtered, filterOperand, keyValue, methodResult } from './filters.js';
import { memberOf, operated } from './operators.js';
import { pythonText, sliceText, strip, strippedSides } from './texts.js';

/** Creating the scope and the variable `loop`. */
const stepsPerIteration = 8;
/** Creating the methods of a text. */
const stepsPerMethod = 8;

const breakLoop = new Error("'break' outside of a loop");
const continueLoop = new Error("'continue' outside of a loop");

/** Statements that print nothing. */
const silentStatements = new Set(['Set', 'Macro', 'Comment', 'Break', 'Continue']);

/** What statements print. */
class Output {
  readonly #budget: StepBudget;
  #text = '';

  constructor(budget: StepBudget) {
    this.#budget = budget;
  }

  get text(): string {
    return this.#text;
  }

  write(value: Value): void {
    if (value.type === 'UndefinedValue') return;
    spendDeep(this.#budget, value);
    this.#text += pythonText(value);
  }
}

export class BudgetInterpreter extends Interpreter {
  readonly #budget: StepBudget;
  /** Statements inside an expression, such as those of macros, cannot pause. */
  #numExpressions = 0;

  constructor(environment: Environment, budget: StepBudget) {
    super(environment);
    this.#budget = budget;
  }

  /** The text of a template. */
  *render(statements: readonly Node[]): Sliced<string> {
    return yield* this.#textOf(statements, this.global);
  }

  *#textOf(statements: readonly Node[], environment: Environment): Sliced<string> {
    const output = new Output(this.#budget);
    yield* this.#runAll(statements, environment, output);
    return output.text;
  }

  *#runAll(statements: readonly Node[], environment: Environment, output: Output): Sliced<void> {
    for (const statement of statements) {
      yield* this.#run(statement, environment, output);
      if (this.#numExpressions > 0 || !this.#budget.isSliceDone()) continue;
      yield;
      this.#budget.startSlice();
    }
  }

  *#run(statement: Node, environment: Environment, output: Output): Sliced<void> {
    const { type, body = [], alternate = [] } = statement;
    if (type === 'If') {
      const test = this.evaluate(statement.test, environment).__bool__().value;
      yield* this.#runAll(test ? body : alternate, environment, output);
    } else if (type === 'For') {
      yield* this.#loop(statement, environment, output);
    } else if (type === 'Set' && !statement.value) {
      const text = yield* this.#textOf(body, environment);
      this.evaluate({ ...statement, value: held(new StringValue(text)) }, environment);
    } else if (type === 'FilterStatement') {
      const operand = held(new StringValue(yield* this.#textOf(body, environment)));
      output.write(this.evaluate({ ...statement, type: 'FilterExpression', operand }, environment));
    } else {
      const value = this.evaluate(statement, environment);
      if (!silentStatements.has(type)) output.write(value);
    }
  }

  *#loop(statement: Node, environment: Environment, output: Output): Sliced<void> {
    const { iterable, loopvar, body = [], defaultBlock = [] } = statement;
    const isFiltered = iterable?.type === 'SelectExpression';
    const all = this.#membersOf(this.evaluate(isFiltered ? iterable.lhs : iterable, environment));
    const scopeOf = (item: Value): Environment => {
      this.#budget.spend(stepsPerIteration);
      const scope = new Environment(environment);
      assign(loopvar, item, scope);
      return scope;
    };
    const isTaken = (item: Value): boolean => this.evaluate(iterable?.test, scopeOf(item)).__bool__().value;
    const items = isFiltered ? all.filter(isTaken) : all;
    if (items.length === 0) yield* this.#runAll(defaultBlock, new Environment(environment), output);
    for (const [index, item] of items.entries()) {
      const scope = scopeOf(item);
      scope.setVariable('loop', loopVariable(items, index));
      try {
        yield* this.#runAll(body, scope, output);
      } catch (error) {
        if (error === breakLoop) break;
        if (error !== continueLoop) throw error;
      }
    }
  }

  override evaluate(node: Node | undefined, environment: Environment): Value {
    if (node?.type === 'Held') return node.value as Value;
    const value = this.#evaluate(node, environment);
    this.#budget.spend(copySteps(value));
    return value;
  }

  /** Evaluates without charging for a copy of the value, for operands that are only inspected. */
  #evaluate(node: Node | undefined, environment: Environment): Value {
    if (node?.type === 'Held') return node.value as Value;
    this.#budget.spend(1);
    switch (node?.type) {
      case 'Break':
        throw breakLoop;
      case 'Continue':
        throw continueLoop;
      case 'If':
      case 'For':
      case 'FilterStatement':
        return this.#evaluateStatement(node, environment);
      case 'Macro':
      case 'CallStatement':
        this.#budget.spend(nodeCount(node));
        return super.evaluate(node, environment);
      case 'Identifier':
        return this.#variable(node.value as string, environment);
      case 'MemberExpression':
        return this.#member(node, environment);
      case 'CallExpression':
        return this.#call(node, environment);
      case 'FilterExpression':
        return this.#filter(node, environment);
      case 'BinaryExpression':
        return this.#binary(node, environment);
      case 'TestExpression':
        return this.#test(node, environment);
      case 'ObjectLiteral':
        return this.#dictionary(node, environment);
      default:
        return super.evaluate(node, environment);
    }
  }

  #evaluateStatement(statement: Node, environment: Environment): Value {
    const output = new Output(this.#budget);
    this.#numExpressions++;
    try {
      finish(this.#run(statement, environment, output));
    } finally {
      this.#numExpressions--;
    }
    return new StringValue(output.text);
  }

  #variable(name: string, environment: Environment): Value {
    let depth = 0;
    for (let scope: Environment | undefined = environment; scope !== undefined; scope = scope.parent) {
      const value = scope.variables.get(name);
      if (value !== undefined) return value;
      if (++depth % 8 === 0) this.#budget.spend(1);
    }
    return new UndefinedValue(undefined);
  }

  #member(node: Node, environment: Environment): Value {
    const object = this.#evaluate(node.object, environment);
    const { computed, property } = node;
    if (computed !== true || property?.type !== 'SliceExpression') {
      const key = computed === true ? this.#evaluate(property, environment) : keyValue(property?.value);
      const found = memberOf(object, key, computed !== true);
      if (found !== undefined) return found;
      const wanted = computed === true ? held(key) : property;
      return super.evaluate({ ...node, object: held(object), property: wanted as Node }, environment);
    }
    const start = this.#evaluate(property.start, environment);
    const stop = this.#evaluate(property.stop, environment);
    const step = this.#evaluate(property.step, environment);
    if (typeof object.value === 'string' && [undefined, 1].includes(step.value as number | undefined)) {
      if (isIndex(start) && isIndex(stop)) return this.#sliceText(object.value, start.value, stop.value);
    }
    this.#budget.spend(typeof object.value === 'string' ? object.value.length / 4 : 8 * copySteps(object));
    const evaluated = { ...property, start: held(start), stop: held(stop), step: held(step) };
    return super.evaluate({ ...node, object: held(object), property: evaluated }, environment);
  }

  #sliceText(text: string, start: number = 0, stop: number = text.length): Value {
    const numWalked = [start, stop].map((index) => Math.min(Math.abs(index), text.length) / 32);
    for (const numSteps of numWalked) this.#budget.spend(numSteps);
    return new StringValue(sliceText(text, start, stop));
  }

  #call(node: Node, environment: Environment): Value {
    const { callee, args = [] } = node;
    if (callee?.type !== 'MemberExpression' || callee.computed === true) return super.evaluate(node, environment);
    const object = this.#evaluate(callee.object, environment);
    const name = callee.property?.value;
    const evaluated = this.#arguments(args, environment);
    if (typeof object.value === 'string') {
      this.#budget.spend(stepsPerMethod);
      spendTextMethod(this.#budget, name, object.value, evaluated);
      for (const value of [...evaluated.positional, ...evaluated.keywords.values()]) spendDeep(this.#budget, value);
      const [characters, ...others] = evaluated.positional;
      const sides = strippedSides.get(name);
      if (sides !== undefined && typeof characters?.value === 'string' && others.length === 0) {
        return new StringValue(strip(object.value, characters.value, sides, this.#budget));
      }
    } else {
      spendFilter(this.#budget, name, object, evaluated);
    }
    const result = methodResult(name, object, evaluated);
    if (result !== undefined) return result;
    if (object.type === 'UndefinedValue') throw new Error(`undefined has no method ${String(name)}`);
    const method = { ...callee, object: held(object) };
    return super.evaluate({ ...node, callee: method, args: evaluated.nodes }, environment);
  }

  #filter(node: Node, environment: Environment): Value {
    const { filter } = node;
    const name = filter?.type === 'CallExpression' ? filter.callee?.value : filter?.value;
    const given =
      name === 'length' ? this.#evaluate(node.operand, environment) : this.evaluate(node.operand, environment);
    const { nodes, ...args } = this.#arguments(filter?.args ?? [], environment);
    spendFilter(this.#budget, name, given, args);
    spendConversion(this.#budget, name, given);
    const operand = filterOperand(name, given);
    const known = filtered(name, operand, args) ?? this.#filterMembers(name, operand, nodes, environment);
    if (known !== undefined) return known;
    const takesLiterals = name === 'selectattr' || name === 'rejectattr';
    const call = filter?.args === undefined || takesLiterals ? filter : { ...filter, args: nodes };
    return super.evaluate({ ...node, operand: held(operand), filter: call as Node }, environment);
  }

  /** `map('filter')` and the like apply a filter to each member. */
  #filterMembers(
    name: unknown,
    operand: Value,
    [first, ...others]: readonly Node[],
    environment: Environment,
  ): Value | undefined {
    const filter = first?.type === 'Held' ? (first.value as Value).value : undefined;
    if (name !== 'map' || typeof filter !== 'string' || !Array.isArray(operand.value)) return undefined;
    const callee: Node = { type: 'Identifier', value: filter };
    const call: Node = others.length === 0 ? callee : { type: 'CallExpression', callee, args: others };
    return new ArrayValue(
      (operand.value as Value[]).map((member) => {
        return this.#filter({ type: 'FilterExpression', operand: held(member), filter: call }, environment);
      }),
    );
  }

  #binary(node: Node, environment: Environment): Value {
    const operator = node.operator?.value ?? '';
    if (operator === 'and' || operator === 'or') return super.evaluate(node, environment);
    const left = this.#evaluate(node.left, environment);
    const right = this.#evaluate(node.right, environment);
    spendOperator(this.#budget, operator, left, right);
    const value = operated(operator, left, right);
    if (value !== undefined) return value;
    return super.evaluate({ ...node, left: held(left), right: held(right) }, environment);
  }

  #dictionary(node: Node, environment: Environment): Value {
    const members = new Map<unknown, Value>();
    for (const [key, value] of node.value as ReadonlyMap<Node, Node>) {
      const name = this.evaluate(key, environment);
      if (typeof name.value !== 'string' && typeof name.value !== 'number') {
        throw new Error(`expected a string or a number as a key, got ${name.type}`);
      }
      members.set(name.value, this.evaluate(value, environment));
    }
    return new ObjectValue(members as Map<string, Value>);
  }

  #test(node: Node, environment: Environment): Value {
    const operand = this.#evaluate(node.operand, environment);
    const name = node.test?.value;
    if (operand.type === 'UndefinedValue' && (name === 'iterable' || name === 'sequence')) {
      return new BooleanValue(node.negate !== true);
    }
    if (typeof operand.value === 'string' && (name === 'lower' || name === 'upper')) {
      spendTextMethod(this.#budget, name, operand.value, noArguments);
    }
    return super.evaluate({ ...node, operand: held(operand) }, environment);
  }

  /** The nodes hold the values. */
  #arguments(nodes: readonly Node[], environment: Environment): Arguments & { readonly nodes: readonly Node[] } {
    const positional: Value[] = [];
    const keywords = new Map<string, Value>();
    const evaluated = nodes.map((node): Node => {
      if (node.type === 'KeywordArgumentExpression') {
        const value = this.evaluate(node.value as Node, environment);
        keywords.set(node.key?.value as string, value);
        return { ...node, value: held(value) };
      }
      const isSpread = node.type === 'SpreadExpression' || node.type === 'KeywordSpreadExpression';
      const value = this.evaluate(isSpread ? node.argument : node, environment);
      if (!isSpread) positional.push(value);
      else if (Array.isArray(value.value)) for (const member of value.value as Value[]) positional.push(member);
      else if (value.value instanceof Map) for (const [name, member] of value.value) keywords.set(name, member);
      return isSpread ? { ...node, argument: held(value) } : held(value);
    });
    return { positional, keywords, nodes: evaluated };
  }

  /** @throws {Error} for a value that cannot be iterated */
  #membersOf({ type, value }: Value): readonly Value[] {
    if (Array.isArray(value)) return value as Value[];
    if (type === 'UndefinedValue') return [];
    if (value instanceof Map && type === 'ObjectValue') return [...value.keys()].map(keyValue);
    if (typeof value !== 'string') throw new Error(`expected a list, an object or a string to iterate, got ${type}`);
    this.#budget.spend(value.length);
    return Array.from(value, (character) => new StringValue(character));
  }
}

const noArguments: Arguments = { positional: [], keywords: new Map() };

function isIndex(value: Value): value is Value & { readonly value: number | undefined } {
  return value.value === undefined || Number.isSafeInteger(value.value);
}

function assign(target: Node | undefined, item: Value, scope: Environment): void {
  if (target?.type !== 'TupleLiteral') {
    scope.setVariable(target?.value as string, item);
    return;
  }
  const names = target.value as readonly Node[];
  const members: unknown = item.value;
  if (!Array.isArray(members) || members.length !== names.length) {
    throw new Error(
      `expected ${names.length} values to unpack, got ${Array.isArray(members) ? members.length : item.type}`,
    );
  }
  for (const [index, name] of names.entries()) assign(name, members[index] as Value, scope);
}

function loopVariable(items: readonly Value[], index: number): Value {
  const { length } = items;
  return new ObjectValue(
    new Map<string, Value>([
      ['index', new IntegerValue(index + 1)],
      ['index0', new IntegerValue(index)],
      ['revindex', new IntegerValue(length - index)],
      ['revindex0', new IntegerValue(length - index - 1)],
      ['first', new BooleanValue(index === 0)],
      ['last', new BooleanValue(index === length - 1)],
      ['length', new IntegerValue(length)],
      ['previtem', items[index - 1] ?? new UndefinedValue(undefined)],
      ['nextitem', items[index + 1] ?? new UndefinedValue(undefined)],
    ]),
  );
}
