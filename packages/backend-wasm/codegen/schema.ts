/** The op registry as the generators see it: operands with their indices and axes, attributes, kernels. */
import './sources.ts';
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { OpSpec } from '@winnow/ops';

const { opSpecs } = await import('@winnow/ops');

export interface Axis {
  readonly name: string;
  /** Index from the first axis, or from the last if a tensor may have any number of leading axes. */
  readonly index: number;
  readonly fromEnd: boolean;
}

export interface Operand {
  readonly name: string;
  /** Position among the inputs and outputs of the op, as in the encoded record. */
  readonly index: number;
  readonly contract: string;
  /** The shape contract with names instead of letters. */
  readonly shape: string;
  readonly dtypes: readonly string[];
  readonly isOptional: boolean;
  /** Named axes; axes of size 1 have no name. */
  readonly axes: readonly Axis[];
  readonly hasLeadingAxes: boolean;
}

export interface Attribute {
  readonly name: string;
  readonly index: number;
  readonly type: 'i32' | 'f32' | 'bool';
  /** Allowed strings, in the order of their encoded values. */
  readonly values: readonly string[];
}

export interface Op {
  readonly name: string;
  readonly opcode: number;
  readonly operands: readonly Operand[];
  readonly attributes: readonly Attribute[];
  readonly isSerial: boolean;
  readonly work: string;
  /** Path of the kernel below `assembly`, and the function in it. */
  readonly file: string;
  readonly functionName: string;
  /** Whether that function exists; records of other ops run on the reference. */
  readonly hasKernel: boolean;
  /**
   * Scratch functions beside the kernel: shared bytes, bytes per thread, or a layout function that places the scratch
   * of a thread at an address and returns its end.
   */
  readonly sharedBytes: string | undefined;
  readonly localBytes: string | undefined;
  readonly localLayout: string | undefined;
}

function lettersOf(contract: string): string[] {
  return contract === '' ? [] : contract.split(' ');
}

function axesOf(spec: OpSpec, contract: string): Axis[] {
  const letters = lettersOf(contract);
  const fromEnd = letters[0] === '...';
  return letters.flatMap((letter, position): Axis[] => {
    if (letter === '...' || /^\d+$/.test(letter)) return [];
    const name = spec.axes[letter];
    if (name === undefined) throw new Error(`${spec.name}: axis ${letter} has no name`);
    return [{ name, index: fromEnd ? letters.length - position : position, fromEnd }];
  });
}

function operandsOf(spec: OpSpec): Operand[] {
  const inputs = Object.entries(spec.inputs).map(([name, input]) => ({ name, ...input, isOptional: input.optional }));
  const outputs = Object.entries(spec.outputs).map(([name, output]) => ({
    ...{ ...output, isOptional: output.when !== undefined },
    name: Object.hasOwn(spec.inputs, name) ? `${name}Out` : name,
  }));
  return [...inputs, ...outputs].map(({ name, shape, dtypes, isOptional }, index) => ({
    ...{ name, index, dtypes, contract: shape, isOptional: isOptional === true },
    shape: lettersOf(shape)
      .map((letter) => spec.axes[letter] ?? letter)
      .join(', '),
    axes: axesOf(spec, shape),
    hasLeadingAxes: shape.startsWith('...'),
  }));
}

function attributesOf({ attributes }: OpSpec): Attribute[] {
  return Object.entries(attributes).map(([name, { kind, integer, values }], index) => ({
    ...{ name, index, values: values ?? [] },
    type: kind === 'boolean' ? 'bool' : kind === 'number' && integer !== true ? 'f32' : 'i32',
  }));
}

/** `page-topk-attention` as `pageTopkAttention`. */
function camelCase(name: string): string {
  return name.replace(/-(\w)/g, (_, letter: string) => letter.toUpperCase());
}

const assembly = fileURLToPath(new URL('../assembly/', import.meta.url));

/** Whether a kernel file exports a function of this name, defined there or in another file. */
function hasFunction(file: string, name: string): boolean {
  const path = `${assembly}${file}.ts`;
  const pattern = new RegExp(`^export (function ${name}\\(|\\{ (\\w+ as )?${name} \\} from )`, 'm');
  return existsSync(path) && pattern.test(readFileSync(path, 'utf8'));
}

function existing(file: string, name: string): string | undefined {
  return hasFunction(file, name) ? name : undefined;
}

export const ops: readonly Op[] = opSpecs.map((spec, opcode) => {
  const operands = operandsOf(spec);
  const file = `ops/${spec.kernelFile ?? spec.name}`;
  const functionName = camelCase(spec.name);
  return {
    ...{ name: spec.name, opcode, operands, attributes: attributesOf(spec) },
    isSerial: spec.partition === 'serial',
    work: spec.work ?? `${operands[0]?.name}.numElements`,
    ...{ file, functionName, hasKernel: hasFunction(file, functionName) },
    sharedBytes: existing(file, `${functionName}SharedBytes`),
    localBytes: existing(file, `${functionName}LocalBytes`),
    localLayout: existing(file, `${functionName}Scratch`),
  };
});
