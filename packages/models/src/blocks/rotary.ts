/** RoPE in programs: the frequency tables, and the op records that use them. */
import type { ProgramTensor } from '@winnow/ops';
import { ArgumentError } from '@winnow/tensor';
import type { Fields } from '../file/fields.js';
import type { RopeConfig, RotaryDecoderConfig } from '../program/config.js';
import { ropeFrequenciesName, type DecoderStep } from '../program/decoder-program.js';
import { rotaryLengthsOf, type RotaryLengths } from '../program/rotary-lengths.js';
import { ropeTable } from '../settings/rope-settings.js';

/** One variant of RoPE. */
export interface Rotary {
  /** The tables, to be added to the constants of the model. */
  readonly constants: readonly (readonly [name: string, values: Float32Array])[];
  /** Rotates heads `[T, N, H]` by `positions` `[T]`. */
  rotate(step: DecoderStep, heads: ProgramTensor, positions: ProgramTensor): ProgramTensor;
}

/**
 * @param name name of the table among the model's constants
 * @throws {FormatError} when the settings are invalid, such as a base or a factor of 0
 */
export function rotaryOf(fields: Fields, rope: RopeConfig, name: string = ropeFrequenciesName): Rotary {
  const { layout } = rope;
  const { frequencies, amplitude } = ropeTable(fields, rope);
  const lengths = rotaryLengthsOf(rope);
  const numPairs = frequencies.length;
  const rowsName = `${name}.rows`;
  const constants: [string, Float32Array][] = [[name, frequencies]];
  if (lengths !== undefined) constants.push([rowsName, frequencyRows(fields, rope, lengths, numPairs)]);
  return {
    constants,
    rotate(step, x, positions) {
      const { b, contextSize, constant } = step;
      const image = rope.coordinates && step.imageRotation(numPairs);
      if (image !== undefined) {
        checkOwnPositions(step, positions);
        return b.activation('rope', { x, ...image }, { layout, amplitude, numPairs });
      }
      if (lengths === undefined || contextSize <= lengths.contextLength) {
        return b.activation('rope', { x, positions, frequencies: constant(name) }, { layout, amplitude });
      }
      const table = { frequencies: constant(rowsName), rows: step.rotaryRows() };
      return b.activation('rope', { x, positions, ...table }, { layout, amplitude, numPairs });
    },
  };
}

/** The two variants of RoPE of models whose layers with the sliding window have their own. */
export interface LocalRotaries {
  readonly rotaries: readonly Rotary[];
  rotaryOfLayer(layer: number): Rotary;
}

/** @param localRope RoPE of the layers with the sliding window; `config.rope` is that of the others */
export function localRotaries(
  fields: Fields,
  { rope, windowedLayers = [] }: RotaryDecoderConfig,
  localRope: RopeConfig,
): LocalRotaries {
  const rotary = rotaryOf(fields, rope);
  if (!windowedLayers.includes(true)) return { rotaries: [rotary], rotaryOfLayer: () => rotary };
  const local = rotaryOf(fields, localRope, `${ropeFrequenciesName}.local`);
  return {
    rotaries: [rotary, local],
    rotaryOfLayer: (layer) => (windowedLayers[layer] === true ? local : rotary),
  };
}

/** @throws {ArgumentError} when a policy rotates queries by positions other than their own, which M-RoPE does not support */
function checkOwnPositions(step: DecoderStep, positions: ProgramTensor): void {
  if (positions === step.positions) return;
  const expected = 'one that rotates queries by their own positions, since the rows of images have three';
  throw new ArgumentError({ argument: 'attention', expected, actual: 'a policy that moves positions' });
}

/** 32 MiB, enough for 131,072 lengths with 64 pairs. */
const maxRowFrequencies = 2 ** 23;

function frequencyRows(fields: Fields, rope: RopeConfig, lengths: RotaryLengths, numPairs: number): Float32Array {
  const { base, layout, rotaryDim } = rope;
  const { numRows } = lengths;
  if (numRows * numPairs > maxRowFrequencies) {
    const expected = `at most ${Math.floor(maxRowFrequencies / numPairs)} lengths with separate frequencies`;
    throw fields.refusal('rope_scaling', expected, numRows);
  }
  const rows = new Float32Array(numRows * numPairs);
  for (let row = 0; row < numRows; row++) {
    const scaling = lengths.scalingOf(lengths.keyOfRow(row));
    rows.set(ropeTable(fields, { base, layout, rotaryDim, ...(scaling && { scaling }) }).frequencies, row * numPairs);
  }
  return rows;
}
