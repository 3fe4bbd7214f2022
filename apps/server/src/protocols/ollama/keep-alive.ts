/** How long Ollama's clients want a model to stay loaded. */
import { badRequest } from '../../http/api-error.js';

const unitsMs: Readonly<Record<string, number>> = { h: 3_600_000, m: 60_000, s: 1000, ms: 1, us: 1e-3, ns: 1e-6 };

/**
 * Milliseconds of seconds, or of a duration of Go such as `1h30m`. Below 0: `Infinity`.
 * @throws {ApiError} 400 for another text
 */
export function keepMsOf(value: string | number | undefined): number | undefined {
  if (value === undefined || value === '') return undefined;
  const milliseconds = typeof value === 'number' ? value * 1000 : durationMs(value);
  return milliseconds < 0 ? Infinity : Math.round(milliseconds);
}

function durationMs(text: string): number {
  const [, sign = '', duration = ''] = /^([+-]?)(.*)$/s.exec(text) ?? [];
  const parts = [...duration.matchAll(/(\d+(?:\.\d*)?|\.\d+)(h|ms|m|s|us|ns)/g)];
  const isWhole = parts.map(([part]) => part).join('') === duration && parts.length > 0;
  if (!isWhole && duration !== '0') {
    throw badRequest('keep_alive', 'must be a number of seconds or a duration such as 5m', 'invalid_value');
  }
  const total = parts.reduce((sum, [, number, unit = '']) => sum + Number(number) * (unitsMs[unit] ?? 0), 0);
  return sign === '-' ? -total : total;
}
