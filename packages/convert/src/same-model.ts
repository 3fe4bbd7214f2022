/** Checks that the written settings describe the model that was read: both must build the same program. */
import type { EmbedderDescription, ModelDescription } from '@winnow/models';
import type { Program } from '@winnow/ops';
import { FormatError } from '@winnow/tensor';

/** Attributes that differ between the two formats by design. */
const formatAttributes: readonly string[] = ['rope.layout', 'gated-delta.heads'];

/** RoPE frequencies may differ in the last stored digits. */
const relativeTolerance = 1e-5;

/**
 * @param ignored further attributes, as `op.name`
 * @throws {FormatError} naming the op and attribute that would differ because the format cannot represent the setting
 */
export function checkSameModel(
  source: string,
  from: EmbedderDescription,
  to: EmbedderDescription,
  ignored: readonly string[] = [],
): void {
  const contexts = [from.config.contextLength, from.config.rope?.beyond?.contextLength];
  for (const contextSize of contexts) {
    if (contextSize !== undefined) checkPrograms(source, from, to, contextSize, [...formatAttributes, ...ignored]);
  }
}

function checkPrograms(
  source: string,
  from: EmbedderDescription,
  to: EmbedderDescription,
  contextSize: number,
  ignored: readonly string[],
): void {
  checkSamePrograms(source, programOf(from, contextSize), programOf(to, contextSize), ignored);
  for (const [name, values] of from.constants) {
    const others = to.constants.get(name);
    const at = values.findIndex((value, index) => !isClose(value, others?.[index]));
    if (at !== -1 || others?.length !== values.length) {
      throw differs(source, `${name}[${at}]`, values[at], others?.[at]);
    }
  }
}

function differs(source: string, field: string, expected: unknown, actual: unknown): FormatError {
  const rule = 'the format cannot represent this setting';
  return new FormatError({
    ...{ source, field },
    message: `${rule}: expected ${String(expected)}, it would be read as ${String(actual)}`,
  });
}

/** @throws {FormatError} for a setting that would be read as another one */
export function checkSameSetting(source: string, field: string, expected: unknown, actual: unknown): void {
  const [a, b] = [expected, actual].map((value) => JSON.stringify(value));
  if (a !== b) throw differs(source, field, a, b);
}

/**
 * @param ignored attributes, as `op.name`
 * @throws {FormatError} naming the op and attribute that would differ
 */
export function checkSamePrograms(source: string, a: Program, b: Program, ignored: readonly string[] = []): void {
  const ops = (program: Program): string => program.records.map(({ op }) => op).join(' ');
  if (ops(a) !== ops(b)) throw differs(source, 'layers', ops(a), ops(b));
  for (const [index, { op, attributes, layer }] of a.records.entries()) {
    const other = b.records[index]?.attributes ?? {};
    for (const name of new Set([...Object.keys(attributes), ...Object.keys(other)])) {
      if (ignored.includes(`${op}.${name}`) || isClose(attributes[name], other[name])) continue;
      throw differs(source, `${name} of ${op} in layer ${layer}`, attributes[name], other[name]);
    }
  }
}

function isClose(a: unknown, b: unknown): boolean {
  if (typeof a !== 'number' || typeof b !== 'number') return a === b;
  return a === b || Math.abs(a - b) <= relativeTolerance * Math.max(Math.abs(a), Math.abs(b));
}

function programOf(description: EmbedderDescription, contextSize: number): Program {
  if (!('buildProgram' in description)) {
    return description.buildEmbeddingProgram({ maxTokens: 4, maxSequences: 1, contextSize, pooling: 'mean' });
  }
  return (description as ModelDescription).buildProgram({
    maxTokens: 1,
    maxSequences: 1,
    maxOutputRows: 1,
    cache: { numBlocks: 1, blockSize: 16, maxBlocksPerSequence: 1, dtype: { keys: 'f32', values: 'f32' } },
    contextSize,
    topK: 1,
  });
}
