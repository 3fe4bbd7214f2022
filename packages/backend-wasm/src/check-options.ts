/** Refuses options that make no sense, with what was expected and what was found. */
import { ArgumentError } from '@winnow/tensor';

/** @throws {ArgumentError} */
export function checkInteger(argument: string, value: number, min: number, max: number): void {
  if (Number.isSafeInteger(value) && value >= min && value <= max) return;
  throw new ArgumentError({ argument, expected: `an integer from ${min} to ${max}`, actual: String(value) });
}

/** @throws {ArgumentError} */
export function checkMilliseconds(argument: string, value: number): void {
  if (Number.isFinite(value) && value >= 0) return;
  throw new ArgumentError({ argument, expected: 'milliseconds, 0 or more', actual: String(value) });
}

/** @throws {ArgumentError} */
export function checkChoice(argument: string, value: unknown, choices: readonly unknown[]): void {
  if (choices.includes(value)) return;
  throw new ArgumentError({ argument, expected: choices.join(' | '), actual: String(value) });
}
