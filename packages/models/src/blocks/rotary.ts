/** RoPE in programs: the frequency tables, and the records that use them. */
import type { ProgramTensor } from '@winnow/ops';
import type { Fields } from '../file/fields.js';
import type { RopeConfig } from '../program/config.js';
import { ropeFrequenciesName, type DecoderStep } from '../program/decoder-program.js';
import { ropeTable } from '../settings/rope-settings.js';

/** One variant of RoPE. */
export interface Rotary {
  /** The tables, to be added to the constants of the model. */
  readonly constants: readonly (readonly [name: string, values: Float32Array])[];
  /** Rotates heads `[T, N, H]` by `positions` `[T]`. */
  rotate(step: DecoderStep, heads: ProgramTensor, positions: ProgramTensor): ProgramTensor;
}

/**
 * @param name of the table among the model's constants
 * @throws {FormatError} when the settings are invalid, such as a base or a factor of 0
 */
export function rotaryOf(fields: Fields, rope: RopeConfig, name: string = ropeFrequenciesName): Rotary {
  const { layout, beyond } = rope;
  const usual = { name, ...ropeTable(fields, rope) };
  const long = beyond && { name: `${name}.long`, ...ropeTable(fields, { ...rope, scaling: beyond.scaling }) };
  return {
    constants: [usual, ...(long === undefined ? [] : [long])].map((table) => [table.name, table.frequencies]),
    rotate(step, x, positions) {
      const isLong = beyond !== undefined && step.contextSize > beyond.contextLength;
      const { name: tableName, amplitude } = isLong && long !== undefined ? long : usual;
      return step.b.activation('rope', { x, positions, frequencies: step.constant(tableName) }, { layout, amplitude });
    },
  };
}
