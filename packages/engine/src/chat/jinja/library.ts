/**
 * The parts in use of the Jinja library: its own declarations import files without an extension, which `nodenext`
 * cannot resolve, and its values are not exported.
 */
import * as library from '@huggingface/jinja';

/** A node of the syntax tree, with the members of all kinds of nodes. */
export interface Node {
  readonly type: string;
  /** Of literals and identifiers; the expression of `set`. */
  readonly value?: unknown;
  readonly operator?: { readonly value: string };
  readonly computed?: boolean;
  readonly negate?: boolean;
  readonly object?: Node;
  readonly property?: Node;
  readonly operand?: Node;
  readonly filter?: Node;
  readonly callee?: Node;
  readonly args?: readonly Node[];
  readonly argument?: Node;
  readonly key?: Node;
  readonly left?: Node;
  readonly right?: Node;
  readonly test?: Node;
  readonly start?: Node;
  readonly stop?: Node;
  readonly step?: Node;
  readonly loopvar?: Node;
  readonly iterable?: Node;
  readonly lhs?: Node;
  readonly body?: readonly Node[];
  readonly alternate?: readonly Node[];
  readonly defaultBlock?: readonly Node[];
}

export interface Value {
  readonly type: string;
  /** Undefined for `none`, too. */
  readonly value: unknown;
  /** Members that the library adds, such as methods. */
  readonly builtins: ReadonlyMap<string, Value>;
  __bool__(): { readonly value: boolean };
  toString(): string;
}

/** A scope of variables. */
export interface Environment {
  readonly parent?: Environment;
  readonly variables: ReadonlyMap<string, Value>;
  /** Converts the value. */
  set(name: string, value: unknown): Value;
  setVariable(name: string, value: Value): Value;
}

interface Library {
  readonly Environment: new (parent?: Environment) => Environment;
  readonly Interpreter: new (environment: Environment) => {
    readonly global: Environment;
    evaluate(node: Node | undefined, environment: Environment): Value;
  };
}

const typed = library as unknown as Library;
export const Environment: Library['Environment'] = typed.Environment;
export const Interpreter: Library['Interpreter'] = typed.Interpreter;
/** A parsed template. */
export { Template } from '@huggingface/jinja';

type ValueClass<Content> = new (value: Content) => Value;

function classOf<Content>(example: Content): ValueClass<Content> {
  return new Environment().set('example', example).constructor as ValueClass<Content>;
}

export const ArrayValue: ValueClass<readonly Value[]> = classOf<readonly Value[]>([]);
export const BooleanValue: ValueClass<boolean> = classOf(true);
export const IntegerValue: ValueClass<number> = classOf(1);
export const ObjectValue: ValueClass<ReadonlyMap<string, Value>> = classOf({}) as unknown as ValueClass<
  ReadonlyMap<string, Value>
>;
export const StringValue: ValueClass<string> = classOf('');
const noVariables: Environment = new Environment();
export const TupleValue: ValueClass<readonly Value[]> = new Interpreter(noVariables).evaluate(
  { type: 'TupleLiteral', value: [] },
  noVariables,
).constructor as ValueClass<readonly Value[]>;
export const UndefinedValue: ValueClass<undefined> = classOf(undefined);
/** A function receives keyword arguments as the last one, of type `KeywordArgumentsValue`. */
export const FunctionValue: ValueClass<(args: readonly Value[]) => Value> = classOf(() => {}) as unknown as ValueClass<
  (args: readonly Value[]) => Value
>;

/** A node that has been evaluated. */
export function held(value: Value): Node {
  return { type: 'Held', value };
}
