/** Rejects invalid options with the expected and the actual value. */
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

/** The value itself. @throws {ArgumentError} */
export function checkChoice<const T extends string | boolean>(argument: string, value: T, choices: readonly T[]): T {
  if (choices.includes(value)) return value;
  throw new ArgumentError({ argument, expected: choices.join(' | '), actual: String(value) });
}
