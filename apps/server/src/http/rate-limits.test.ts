import { expect, test } from 'vitest';
import { RateLimiter } from './rate-limits.js';

function limiterAt(rates: ConstructorParameters<typeof RateLimiter>[0]) {
  const clock = { ms: 5000 };
  return { clock, limiter: new RateLimiter(rates, () => clock.ms) };
}

test('a minute of requests may come at once, then one as each comes back', () => {
  const { clock, limiter } = limiterAt({ requestsPerMinute: 6 });
  const remaining = Array.from({ length: 6 }, () => limiter.admit('a')['x-ratelimit-remaining-requests']);
  expect(remaining).toEqual(['5', '4', '3', '2', '1', '0']);
  expect(() => limiter.admit('a')).toThrow(expect.objectContaining({ status: 429, retryAfterSeconds: 10 }) as Error);
  expect(limiter.admit('b')['x-ratelimit-limit-requests']).toBe('6'); // another key
  clock.ms += 9999;
  expect(() => limiter.admit('a')).toThrow('6 requests per minute');
  clock.ms += 1;
  expect(limiter.admit('a')).toEqual({ 'x-ratelimit-limit-requests': '6', 'x-ratelimit-remaining-requests': '0' });
  clock.ms += 3_600_000; // no more than a minute's worth is saved
  for (let count = 0; count < 6; count++) limiter.admit('a');
  expect(() => limiter.admit('a')).toThrow();
});

test('tokens are taken when a request ends, and what was taken too much is waited for', () => {
  const { clock, limiter } = limiterAt({ tokensPerMinute: 60 });
  expect(limiter.admit('a')['x-ratelimit-remaining-tokens']).toBe('60');
  limiter.admit('a');
  limiter.charge('a', 100);
  expect(() => limiter.admit('a')).toThrow(expect.objectContaining({ status: 429, retryAfterSeconds: 41 }) as Error);
  clock.ms += 40_000;
  expect(() => limiter.admit('a')).toThrow('60 tokens per minute');
  clock.ms += 1000;
  limiter.admit('a');
});

test('without rates there are neither limits nor headers', () => {
  const { limiter } = limiterAt({});
  limiter.charge('a', 1e9);
  expect(limiter.admit('a')).toEqual({});
});
