/** Renders parsed Jinja templates with the variables and functions that chat templates expect. */
import type { Sliced } from '@winnow/tensor';
import { StepBudget } from './budget.js';
import { BudgetInterpreter } from './interpreter.js';
import {
  ArrayValue,
  Environment,
  FunctionValue,
  IntegerValue,
  ObjectValue,
  StringValue,
  Template,
  type Node,
  type Value,
} from './library.js';

/** Formatting a date creates formatters of the host. */
const stepsPerDate = 512;
const clock = new Template('{{ strftime_now(format) }}');

/**
 * Text of a template, in slices.
 * @throws {StepBudgetError} for a template that takes too many steps
 * @throws the errors of the template and of the library
 */
export function* renderSliced(template: Template, variables: Readonly<Record<string, unknown>>): Sliced<string> {
  const budget = new StepBudget();
  const environment = new Environment();
  for (const [name, value] of Object.entries(constants)) environment.set(name, value);
  for (const [name, value] of Object.entries(functionsOf(budget))) environment.setVariable(name, value);
  for (const [name, value] of Object.entries(variables)) {
    environment.setVariable(name, yield* converted(value, budget));
  }
  const { body } = template.parsed as unknown as { readonly body: readonly Node[] };
  return yield* new BudgetInterpreter(environment, budget).render(body);
}

const constants = { true: true, True: true, false: false, False: false, none: null, None: null };

function functionsOf(budget: StepBudget): Readonly<Record<string, Value>> {
  return {
    raise_exception: new FunctionValue(([message]) => {
      throw new Error(String(message?.value));
    }),
    range: new FunctionValue((args) => rangeOf(budget, ...args.map(({ value }) => value as number))),
    strftime_now: new FunctionValue(([format]) => {
      const text = String(format?.value);
      budget.spend(stepsPerDate + text.length);
      return new StringValue(clock.render({ format: text }));
    }),
    dict: new FunctionValue((args) => new ObjectValue(new Map(args.flatMap(entriesOf)))),
  };
}

function entriesOf({ value }: Value): [string, Value][] {
  return value instanceof Map ? [...(value as Map<string, Value>)] : [];
}

function rangeOf(budget: StepBudget, first: number = 0, second?: number, step: number = 1): Value {
  const [start, stop] = second === undefined ? [0, first] : [first, second];
  if (step === 0) throw new Error('range() step must not be zero');
  const values: Value[] = [];
  for (let value = start; step > 0 ? value < stop : value > stop; value += step) {
    budget.spend(1);
    values.push(new IntegerValue(value));
  }
  return new ArrayValue(values);
}

function* converted(value: unknown, budget: StepBudget): Sliced<Value> {
  budget.spend(1);
  if (budget.isSliceDone()) {
    yield;
    budget.startSlice();
  }
  if (typeof value === 'string') return new StringValue(value);
  if (Array.isArray(value)) {
    const members: Value[] = [];
    for (const member of value as unknown[]) members.push(yield* converted(member, budget));
    return new ArrayValue(members);
  }
  if (typeof value !== 'object' || value === null) return new Environment().set('value', value);
  const members = new Map<string, Value>();
  for (const [key, member] of Object.entries(value)) members.set(key, yield* converted(member, budget));
  return new ObjectValue(members);
}
