/** Renders Jinja templates within a budget of steps, since templates are part of models, which may be hostile. */
import * as library from '@huggingface/jinja';

/**
 * Templates take up to a few hundred steps per message or tool, so this is enough for thousands of messages; it is
 * spent in about a second.
 */
const maxTemplateSteps = 1 << 20;
/** Copying this many characters counts as a step. */
const charactersPerStep = 256;

/** The template took more than `maxTemplateSteps` steps. */
export class StepBudgetError extends Error {
  constructor() {
    super(`expected at most ${maxTemplateSteps} steps for one conversation`);
    this.name = 'StepBudgetError';
  }
}

interface Statement {
  readonly type: string;
  readonly object?: Statement;
  readonly property?: Statement;
  readonly operand?: Statement;
  readonly filter?: { readonly value?: unknown };
  readonly callee?: Statement;
  readonly args?: readonly Statement[];
  readonly value?: unknown;
}

interface Value {
  readonly value: unknown;
}

interface Environment {
  set(name: string, value: unknown): unknown;
}

/** The parts in use: the library's own declarations import files without an extension, which `nodenext` cannot resolve. */
interface Library {
  readonly Environment: new () => Environment;
  readonly Interpreter: new (environment: Environment) => {
    run(program: unknown): Value;
    evaluate(statement: Statement | undefined, environment: Environment): Value;
  };
}

const { Environment, Interpreter } = library as unknown as Library;
const clock = new library.Template('{{ strftime_now(format) }}');

/** Text of a template. @throws {StepBudgetError}, and the errors of the template and of the library */
export function renderTemplate(template: library.Template, variables: Readonly<Record<string, unknown>>): string {
  const budget = new StepBudget();
  const environment = new Environment();
  const globals: Readonly<Record<string, unknown>> = {
    ...{ true: true, True: true, false: false, False: false, none: null, None: null },
    raise_exception: (message: string) => {
      throw new Error(message);
    },
    range: (start: number, stop?: number, step?: number) => rangeOf(budget, start, stop, step),
    strftime_now: (format: string) => clock.render({ format }),
  };
  for (const [name, value] of Object.entries({ ...globals, ...variables })) environment.set(name, value);
  return String(new BudgetInterpreter(environment, budget).run(template.parsed).value);
}

class StepBudget {
  #left = maxTemplateSteps;

  spend(numSteps: number): void {
    this.#left -= numSteps;
    if (this.#left < 0) throw new StepBudgetError();
  }
}

/** Counts every evaluation, with the size of its value where the parent goes through all of it. */
class BudgetInterpreter extends Interpreter {
  readonly #budget: StepBudget;
  /** Operands of indexing, member access and length, which take constant time whatever their size. */
  readonly #lookedUp = new WeakSet<object>();
  /** Operands of `trim`, which the library rejects when they are undefined; Jinja trims them to an empty text. */
  readonly #trimmed = new WeakSet<object>();

  constructor(environment: Environment, budget: StepBudget) {
    super(environment);
    this.#budget = budget;
  }

  override evaluate(statement: Statement | undefined, environment: Environment): Value {
    this.#budget.spend(1);
    const lookedUp = statement === undefined ? undefined : lookedUpIn(statement);
    if (lookedUp !== undefined) this.#lookedUp.add(lookedUp);
    if (statement?.filter?.value === 'trim' && statement.operand) this.#trimmed.add(statement.operand);
    const value = this.#strip(statement, environment) ?? super.evaluate(statement, environment);
    if (value.value === undefined && statement !== undefined && this.#trimmed.has(statement)) {
      return super.evaluate({ type: 'StringLiteral', value: '' }, environment);
    }
    const size = sizeOf(value);
    if (size > 1 && statement !== undefined && !this.#lookedUp.has(statement)) this.#budget.spend(size);
    return value;
  }

  /** `text.strip(characters)` and its variants: the library strips white space whatever the argument is. */
  #strip(statement: Statement | undefined, environment: Environment): Value | undefined {
    const { object, property, type } = statement?.callee ?? {};
    const [argument, ...others] = statement?.args ?? [];
    const sides = type === 'MemberExpression' ? strippedSides.get(property?.value) : undefined;
    if (sides === undefined || argument === undefined || others.length > 0) return undefined;
    const text = this.evaluate(object, environment).value;
    const characters = this.evaluate(argument, environment).value;
    if (typeof text !== 'string' || typeof characters !== 'string') return undefined;
    const value = strip(text, new Set(characters), sides);
    return super.evaluate({ type: 'StringLiteral', value }, environment);
  }
}

interface Sides {
  readonly start: boolean;
  readonly end: boolean;
}

/** By the name of the method. */
const strippedSides: ReadonlyMap<unknown, Sides> = new Map([
  ['strip', { start: true, end: true }],
  ['lstrip', { start: true, end: false }],
  ['rstrip', { start: false, end: true }],
]);

function strip(text: string, characters: ReadonlySet<string>, sides: Sides): string {
  let [start, end] = [0, text.length];
  while (sides.start && start < end) {
    const first = String.fromCodePoint(text.codePointAt(start) as number);
    if (!characters.has(first)) break;
    start += first.length;
  }
  while (sides.end && start < end) {
    const last = [...text.slice(Math.max(start, end - 2), end)].at(-1) as string;
    if (!characters.has(last)) break;
    end -= last.length;
  }
  return text.slice(start, end);
}

/** The operand of `list[index]`, `object.name` and `list | length`. */
function lookedUpIn({ type, object, property, operand, filter }: Statement): object | undefined {
  if (type === 'MemberExpression' && property?.type !== 'SliceExpression') return object;
  if (type === 'FilterExpression' && filter?.value === 'length') return operand;
  return undefined;
}

function sizeOf({ value }: Value): number {
  if (typeof value === 'string') return Math.floor(value.length / charactersPerStep);
  if (Array.isArray(value)) return value.length;
  return value instanceof Map ? value.size : 0;
}

function rangeOf(budget: StepBudget, first: number, second?: number, step: number = 1): number[] {
  const [start, stop] = second === undefined ? [0, first] : [first, second];
  if (step === 0) throw new Error('range() step must not be zero');
  const values: number[] = [];
  for (let value = start; step > 0 ? value < stop : value > stop; value += step) {
    budget.spend(1);
    values.push(value);
  }
  return values;
}
