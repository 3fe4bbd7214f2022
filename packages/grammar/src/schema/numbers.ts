/** Numbers between bounds, as regular expressions over their decimal digits. */
import type { Bound } from './facts.js';

/** Maximum number of digits before the decimal point without a tighter bound, enough for identifiers of 64 bits. */
const maxDigits = 19;
/** The same where the value of every digit counts: what a double represents exactly. */
const maxExactDigits = 15;
/** Maximum number of digits after the decimal point when there are bounds. */
const fractionDigits = 6;
const scale = 10n ** BigInt(fractionDigits);

/** Any number that a double represents without overflowing to infinity. */
export const anyDecimal: string = `-?(?:0|[1-9]\\d{0,${maxDigits - 1}})(?:\\.\\d{1,16})?(?:[eE][+-]?\\d{1,2})?`;

/**
 * Integers within the bounds; undefined when there are none.
 * @param isExact only integers that a double represents exactly, unless a bound is larger
 */
export function integerRegex(
  minimum: Bound | undefined,
  maximum: Bound | undefined,
  isExact = false,
): string | undefined {
  const numDigits = isExact ? maxExactDigits : maxDigits;
  const low = minimum && (minimum.isExclusive ? Math.floor(minimum.value) + 1 : Math.ceil(minimum.value));
  const high = maximum && (maximum.isExclusive ? Math.ceil(maximum.value) - 1 : Math.floor(maximum.value));
  return signed(
    low === undefined ? undefined : BigInt(low),
    high === undefined ? undefined : BigInt(high),
    (least, most) => natural(least, most, numDigits),
  );
}

/** Numbers within the bounds with at most six digits after the decimal point; undefined when there are none. */
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

/** A number as digits times a power of ten. */
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
function natural(low: bigint, high: bigint | undefined, numDigits = maxDigits): string | undefined {
  const most = high ?? 10n ** BigInt(Math.max(numDigits, low.toString().length)) - 1n;
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

/** Numbers from `low` to `high` millionths. */
function decimal(low: bigint, high: bigint | undefined): string | undefined {
  const [lowWhole, lowRest] = [low / scale, low % scale];
  const top = scale - 1n;
  if (high === undefined) {
    const beyond = natural(lowWhole + 1n, undefined);
    return `${lowWhole}${fraction(lowRest, top)}|(?:${beyond})${fraction(0n, top)}`;
  }
  if (high < low) return undefined;
  const [highWhole, highRest] = [high / scale, high % scale];
  if (lowWhole === highWhole) {
    const rest = fraction(lowRest, highRest);
    return rest === none ? undefined : `${lowWhole}${rest}`;
  }
  const parts = [`${lowWhole}${fraction(lowRest, top)}`, `${highWhole}${fraction(0n, highRest)}`];
  const between = highWhole - lowWhole > 1n ? natural(lowWhole + 1n, highWhole - 1n) : undefined;
  if (between !== undefined) parts.push(`(?:${between})${fraction(0n, top)}`);
  return parts.join('|');
}

const none = '(?:[])';

/** The optional fraction after the integer part: from `low` to `high` millionths, of zero to six digits. */
function fraction(low: bigint, high: bigint): string {
  const parts: string[] = [];
  for (let length = 1; length <= fractionDigits; length++) {
    const unit = 10n ** BigInt(fractionDigits - length);
    const [first, last] = [(low + unit - 1n) / unit, high / unit];
    if (first > last || first >= 10n ** BigInt(length)) continue;
    const pad = (value: bigint): string => String(value).padStart(length, '0');
    parts.push(`\\.(?:${digitsBetween(pad(first), pad(last))})`);
  }
  if (low === 0n) parts.push('');
  return parts.length === 0 ? none : `(?:${parts.join('|')})`;
}
