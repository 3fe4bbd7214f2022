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
  readonly object?: object;
  readonly property?: { readonly type: string };
  readonly operand?: object;
  readonly filter?: { readonly value?: unknown };
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

  constructor(environment: Environment, budget: StepBudget) {
    super(environment);
    this.#budget = budget;
  }

  override evaluate(statement: Statement | undefined, environment: Environment): Value {
    this.#budget.spend(1);
    const lookedUp = statement === undefined ? undefined : lookedUpIn(statement);
    if (lookedUp !== undefined) this.#lookedUp.add(lookedUp);
    const value = super.evaluate(statement, environment);
    const size = sizeOf(value);
    if (size > 1 && statement !== undefined && !this.#lookedUp.has(statement)) this.#budget.spend(size);
    return value;
  }
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
