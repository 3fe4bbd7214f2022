/** Checks one use of an op against its spec and infers the dtypes and shapes of the outputs. */
import { ArgumentError, DTypeError, ShapeError, type DType } from '@winnow/tensor';
import { matchShape, shapeOf, type Bindings, type Dim } from './dims.js';
import type { Attributes, AttributeValue, OpSpec } from './op-spec.js';

/** Dtype and shape of a tensor. */
export interface TensorType {
  readonly dtype: DType;
  readonly shape: readonly Dim[];
}

/**
 * @param updated tensors of outputs that the op updates in place
 * @returns complete attributes (defaults filled in, numbers rounded to f32) and the type of each output
 * @throws {ShapeError | DTypeError | ArgumentError}
 */
export function inferOp(
  spec: OpSpec,
  inputs: Readonly<Record<string, TensorType>>,
  attributes: Attributes,
  updated: Readonly<Record<string, TensorType>> = {},
): { outputs: Record<string, TensorType>; attributes: Attributes } {
  const complete = checkAttributes(spec, attributes);
  const bindings: Bindings = new Map();
  for (const [letter, attribute] of Object.entries(spec.attributeDims ?? {})) {
    bindings.set(letter, complete[attribute] as number);
  }
  const shapes: Record<string, readonly Dim[]> = {};
  matchInputs(spec, inputs, bindings, shapes);
  const outputs = inferOutputs(spec, complete, updated, bindings, shapes);
  checkFixedAxes(spec, bindings);
  spec.check?.(shapes, complete);
  return { outputs, attributes: complete };
}

function matchInputs(
  spec: OpSpec,
  inputs: Readonly<Record<string, TensorType>>,
  bindings: Bindings,
  shapes: Record<string, readonly Dim[]>,
): void {
  for (const [name, input] of Object.entries(spec.inputs)) {
    const tensor = inputs[name];
    if (tensor === undefined) {
      if (input.optional === true) continue;
      throw new ArgumentError({ argument: `${spec.name}: input ${name}`, expected: 'a tensor', actual: 'nothing' });
    }
    checkDType(spec, name, input.dtypes, tensor.dtype);
    matchShape(spec.name, name, input.shape, tensor.shape, bindings);
    shapes[name] = tensor.shape;
  }
  for (const name of Object.keys(inputs)) {
    if (!Object.hasOwn(spec.inputs, name)) throw unknownName(spec, 'input', name, spec.inputs);
  }
}

function inferOutputs(
  spec: OpSpec,
  attributes: Attributes,
  updated: Readonly<Record<string, TensorType>>,
  bindings: Bindings,
  shapes: Record<string, readonly Dim[]>,
): Record<string, TensorType> {
  const outputs: Record<string, TensorType> = {};
  for (const [name, output] of Object.entries(spec.outputs)) {
    if (output.when !== undefined && attributes[output.when] !== true) continue;
    const target = updated[name];
    if ((output.updates === true) !== (target !== undefined)) {
      throw new ArgumentError({
        argument: `${spec.name}: output ${name}`,
        expected: output.updates === true ? 'the tensor to update' : 'no tensor, since the op allocates it',
        actual: target === undefined ? 'nothing' : 'a tensor',
      });
    }
    if (target !== undefined) {
      checkDType(spec, name, output.dtypes, target.dtype);
      matchShape(spec.name, name, output.shape, target.shape, bindings);
    }
    outputs[name] = target ?? {
      dtype: output.dtypes[0] as DType,
      shape: shapeOf(spec.name, name, output.shape, bindings),
    };
    shapes[name] ??= outputs[name].shape;
  }
  for (const name of Object.keys(updated)) {
    if (!Object.hasOwn(spec.outputs, name)) throw unknownName(spec, 'output', name, spec.outputs);
  }
  return outputs;
}

function checkFixedAxes(spec: OpSpec, bindings: Bindings): void {
  for (const letter of spec.fixedAxes ?? []) {
    const dim = bindings.get(letter);
    if (typeof dim !== 'string') continue;
    const actual = `symbol ${dim}`;
    throw new ShapeError({ op: spec.name, rule: `size of axis ${letter}`, expected: 'a number', actual });
  }
}

function checkDType(spec: OpSpec, name: string, allowed: readonly DType[], actual: DType): void {
  if (!allowed.includes(actual)) {
    throw new DTypeError({ op: `${spec.name}: ${name}`, expected: allowed.join(' | '), actual });
  }
}

/** Attributes with their defaults. @throws {ArgumentError} */
export function checkAttributes(spec: OpSpec, attributes: Attributes): Attributes {
  const complete: Record<string, AttributeValue> = {};
  for (const [name, { kind, default: fallback, values, integer }] of Object.entries(spec.attributes)) {
    const value = attributes[name] ?? fallback;
    const argument = `${spec.name}: ${name}`;
    if (typeof value !== kind) throw new ArgumentError({ argument, expected: `a ${kind}`, actual: String(value) });
    if (values !== undefined && !values.includes(value as string)) {
      throw new ArgumentError({ argument, expected: values.join(' | '), actual: String(value) });
    }
    complete[name] = kind === 'number' ? checkNumber(argument, value as number, integer === true) : value;
  }
  for (const name of Object.keys(attributes)) {
    if (!Object.hasOwn(spec.attributes, name)) throw unknownName(spec, 'attribute', name, spec.attributes);
  }
  return complete;
}

/** Rounds numbers to what an encoded word can hold, so that every backend uses the same value. */
function checkNumber(argument: string, value: number, isInteger: boolean): number {
  const stored = isInteger ? value | 0 : Math.fround(value);
  if (isInteger ? stored !== value : !Number.isFinite(stored)) {
    const expected = isInteger ? 'a 32-bit integer' : 'a finite number';
    throw new ArgumentError({ argument, expected, actual: String(value) });
  }
  return stored;
}

function unknownName(spec: OpSpec, kind: string, name: string, known: object): ArgumentError {
  const expected = Object.keys(known).join(' | ') || 'none';
  return new ArgumentError({ argument: `${spec.name}: ${kind}`, expected, actual: name });
}
