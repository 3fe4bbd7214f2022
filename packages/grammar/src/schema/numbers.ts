/** Numbers between bounds, as regular expressions over their decimal digits. */
import type { Bound } from './facts.js';

/** Maximum number of digits before the decimal point without a tighter bound, enough for identifiers of 64 bits. */
const maxDigits = 21;
/** All integers of so many digits are exact in a double. */
const maxExact = 10n ** 15n - 1n;
/** Digits after the decimal point that bounds are compared with; others may follow. */
const fractionDigits = 6;
const scale = 10n ** BigInt(fractionDigits);

/** Integers from 1e21 on, as JavaScript and others write them. */
const largeInteger = '[1-9](?:\\.\\d{1,20})?[eE]\\+?(?:2[1-9]|[3-9]\\d|[12]\\d\\d|30[0-7])';
/** Any number that a double represents without overflowing to infinity. */
export const anyDecimal: string =
  `-?(?:(?:0|[1-9]\\d{0,${maxDigits - 1}})(?:\\.\\d{1,20})?` +
  `(?:[eE](?:\\+?(?:\\d{1,2}|1\\d\\d|2[0-7]\\d)|-\\d{1,3}))?|${largeInteger})`;
const largeFrom = 10n ** 21n;
/** Numbers between zero and a millionth. */
const smallDecimal = '[1-9](?:\\.\\d{1,20})?[eE]-(?:[7-9]|[1-9]\\d|[12]\\d\\d)';

/**
 * Integers within the bounds; undefined when there are none.
 * @param isExact only integers that a double represents exactly, unless a bound is larger
 */
export function integerRegex(
  minimum: Bound | undefined,
  maximum: Bound | undefined,
  isExact = false,
): string | undefined {
  const low = minimum && (minimum.isExclusive ? Math.floor(minimum.value) + 1 : Math.ceil(minimum.value));
  const high = maximum && (maximum.isExclusive ? Math.ceil(maximum.value) - 1 : Math.floor(maximum.value));
  return signed(
    low === undefined ? undefined : BigInt(low),
    high === undefined ? undefined : BigInt(high),
    (least, most) => {
      if (isExact) return natural(least, most ?? maxExact);
      const written = natural(least, most);
      return most === undefined && least < largeFrom ? `${written}|${largeInteger}` : written;
    },
  );
}

/** Numbers within the bounds; undefined when there are none. */
export function decimalRegex(minimum: Bound | undefined, maximum: Bound | undefined): string | undefined {
  if (minimum === undefined && maximum === undefined) return anyDecimal;
  const low = minimum && scaled(minimum, 1n);
  const high = maximum && scaled(maximum, -1n);
  return signed(low, high, decimal);
}

/** The bound in millionths, rounded inwards if it is not a multiple or is exclusive. */
function scaled({ value, isExclusive }: Bound, inwards: 1n | -1n): bigint {
  const { digits, exponent } = decimalOf(value);
  const shift = exponent + fractionDigits;
  if (shift >= 0) {
    const exact = digits * 10n ** BigInt(shift);
    // beyond 2^30, millionths are finer than a double: use integers
    const unit = Math.abs(value) < 2 ** 30 ? 1n : scale;
    return isExclusive ? exact + inwards * unit : exact;
  }
  const divisor = 10n ** BigInt(-shift);
  const below = floorDivide(digits, divisor);
  return inwards === 1n ? below + 1n : below; // the remainder is not zero, because the digits have no trailing zeros
}

/** Largest number of remainders of a divisor that an automaton distinguishes. */
const maxRemainders = 1000;
/** Decimal digits that a double always represents. */
const exactDigits = 15;

/** A divisor as conditions on digits; undefined when an automaton would be too large. */
export interface Divisor {
  readonly numerator: number;
  /** Digits after the decimal point. */
  readonly numDigits: number;
  /** Zeros at the end of multiples. */
  readonly numZeros: number;
}

export function divisorOf(value: number): Divisor | undefined {
  if (!(value > 0 && Number.isFinite(value))) return undefined;
  const { digits, exponent } = decimalOf(value);
  // the last digits determine powers of ten only if the divisor has no other factors
  const isSeparate = digits % 2n !== 0n && digits % 5n !== 0n;
  const numerator = isSeparate || exponent < 0 ? digits : digits * 10n ** BigInt(exponent);
  const numZeros = isSeparate ? Math.max(0, exponent) : 0;
  const numDigits = Math.max(0, -exponent);
  const isSmall = numerator * BigInt(numDigits + 1) <= BigInt(maxRemainders) && numDigits < exactDigits;
  return isSmall && numZeros < exactDigits ? { numerator: Number(numerator), numDigits, numZeros } : undefined;
}

/** Whether every integer is a multiple. */
export function dividesIntegers(divisor: number): boolean {
  return isMultiple(1, divisor);
}

/** Multiples that a double represents exactly: those with few digits, and integers up to a size. */
export function exactRegex({ numDigits, numZeros }: Omit<Divisor, 'numerator'>): string {
  const whole = `-?\\d{1,${numDigits === 0 ? maxDigits : exactDigits - numDigits}}`;
  const zeros = numZeros === 0 ? '' : `-?(?:0|\\d+0{${numZeros}})`;
  return numZeros === 0 ? `${whole}(?:\\.\\d+)?` : zeros;
}

/** Whether a number is a multiple, by its decimal digits. */
export function isMultiple(value: number, divisor: number): boolean {
  const [a, b] = [decimalOf(value), decimalOf(divisor)];
  const exponent = Math.min(a.exponent, b.exponent);
  const scaledTo = ({ digits, exponent: own }: typeof a): bigint => digits * 10n ** BigInt(own - exponent);
  return scaledTo(a) % scaledTo(b) === 0n;
}

/** A number as digits times a power of ten. The digits have no zeros at the end. */
function decimalOf(value: number): { digits: bigint; exponent: number } {
  const [mantissa = '0', power = '0'] = value.toExponential().split('e');
  const [whole = '0', fraction = ''] = mantissa.split('.');
  return { digits: BigInt(whole + fraction), exponent: Number(power) - fraction.length };
}

function floorDivide(a: bigint, b: bigint): bigint {
  const quotient = a / b;
  return a % b < 0n ? quotient - 1n : quotient;
}

/** A range, split into its negative and its non-negative part. */
function signed(
  low: bigint | undefined,
  high: bigint | undefined,
  regexOf: (low: bigint, high: bigint | undefined) => string | undefined,
): string | undefined {
  const parts: string[] = [];
  if (high === undefined || high >= 0n) {
    const positive = regexOf(low !== undefined && low > 0n ? low : 0n, high);
    if (positive !== undefined) parts.push(positive);
  }
  if (low === undefined || low < 0n) {
    const nearest = high !== undefined && high < 0n ? -high : 1n;
    const negative = regexOf(nearest, low === undefined ? undefined : -low);
    if (negative !== undefined) parts.push(`-(?:${negative})`);
  }
  return parts.length === 0 ? undefined : parts.join('|');
}

/** Natural numbers from `low` to `high`. */
function natural(low: bigint, high: bigint | undefined): string | undefined {
  const most = high ?? 10n ** BigInt(Math.max(maxDigits, low.toString().length)) - 1n;
  if (most < low) return undefined;
  const parts: string[] = [];
  for (let length = low.toString().length; length <= most.toString().length; length++) {
    const first = length === 1 ? 0n : 10n ** BigInt(length - 1);
    const last = 10n ** BigInt(length) - 1n;
    parts.push(digitsBetween(String(low > first ? low : first), String(most < last ? most : last)));
  }
  return parts.join('|');
}

/** Digit strings of one length from `low` to `high`. */
function digitsBetween(low: string, high: string): string {
  const length = low.length;
  if (length === 0) return '';
  if (/^0*$/.test(low) && /^9*$/.test(high)) return `\\d{${length}}`;
  const [first, last] = [Number(low[0]), Number(high[0])];
  if (first === last) return `${first}(?:${digitsBetween(low.slice(1), high.slice(1))})`;
  const parts = [`${first}(?:${digitsBetween(low.slice(1), '9'.repeat(length - 1))})`];
  if (last - first > 1) parts.push(`[${first + 1}-${last - 1}]\\d{${length - 1}}`);
  parts.push(`${last}(?:${digitsBetween('0'.repeat(length - 1), high.slice(1))})`);
  return parts.join('|');
}

/** Numbers from `low` to `high` millionths; those in between may have more digits. */
function decimal(low: bigint, high: bigint | undefined): string | undefined {
  const small = low === 0n && (high === undefined || high > 0n) ? `|${smallDecimal}` : '';
  const [lowWhole, lowRest] = [low / scale, low % scale];
  if (high === undefined) {
    const beyond = natural(lowWhole + 1n, undefined);
    const large = low < largeFrom * scale ? `|${largeInteger}` : '';
    return `${lowWhole}${fraction(lowRest, scale)}|(?:${beyond})${fraction(0n, scale)}${small}${large}`;
  }
  if (high < low) return undefined;
  const [highWhole, highRest] = [high / scale, high % scale];
  if (lowWhole === highWhole) {
    const rest = fraction(lowRest, highRest);
    return rest === none ? undefined : `${lowWhole}${rest}${small}`;
  }
  const parts = [`${lowWhole}${fraction(lowRest, scale)}`, `${highWhole}${fraction(0n, highRest)}`];
  const between = highWhole - lowWhole > 1n ? natural(lowWhole + 1n, highWhole - 1n) : undefined;
  if (between !== undefined) parts.push(`(?:${between})${fraction(0n, scale)}`);
  return `${parts.join('|')}${small}`;
}

const none = '(?:[])';

/**
 * The optional fraction after the integer part: from `low` to `high` millionths, of any number of digits, and less than
 * 1. Rounding to a double keeps the order of numbers, so that further digits after a millionth below `high` are safe.
 */
function fraction(low: bigint, high: bigint): string {
  const isWhole = high === scale;
  if (isWhole && low === 0n) return '(?:\\.\\d{1,20})?';
  const parts: string[] = [];
  const pad = (value: bigint, length: number): string => String(value).padStart(length, '0');
  for (let length = 1; length <= fractionDigits; length++) {
    const unit = 10n ** BigInt(fractionDigits - length);
    const [first, last] = [(low + unit - 1n) / unit, (isWhole ? high - 1n : high) / unit];
    if (first > last || first >= 10n ** BigInt(length)) continue;
    parts.push(`\\.(?:${digitsBetween(pad(first, length), pad(last, length))})`);
  }
  if (high > low) {
    const most = high - 1n;
    parts.push(`\\.(?:${digitsBetween(pad(low, fractionDigits), pad(most, fractionDigits))})\\d{1,14}`);
  }
  if (low === 0n) parts.push('');
  return parts.length === 0 ? none : `(?:${parts.join('|')})`;
}
