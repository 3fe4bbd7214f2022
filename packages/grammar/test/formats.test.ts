/** Formats of JSON schema. */
import { expect, test } from 'vitest';
import { formats } from '../src/schema/formats.js';
import { checkSamples, matches, tokensOf, validatorOf } from './schema-checks.js';

test.each([...formats.keys()])('format %s agrees with ajv-formats', (format) => {
  expect(checkSamples({ type: 'string', format }, 7, 40)).toBeGreaterThan(20);
});

test.each<[format: string, valid: readonly string[], invalid: readonly string[]]>([
  ['date', ['2024-12-31', '2024-02-29', '2000-02-29'], ['2023-02-29', '1900-02-29', '2024-13-01']],
  ['time', ['23:59:60Z', '08:30:06.283185z', '08:30:06+01:30'], ['12:00:60Z', '24:00:00Z', '08:30:06']],
  ['date-time', ['2024-02-28T23:59:59.123+01:00', '1963-06-19t08:30:06z'], ['2024-02-30T00:00:00Z']],
  ['email', ['ada.lovelace@mail.example.com', `${'a'.repeat(64)}@x-y.co1`], ['a@', '.a@b.c', 'a@b']],
  ['uuid', ['123e4567-e89b-12d3-a456-426614174000'], ['123e4567']],
  [
    'hostname',
    ['a.b.c.d.e.f', `${'x'.repeat(63)}.a`, `a--b.${'a-'.repeat(31)}b`, 'abc--d', '0-a'],
    ['-a', 'a..b', 'a_b', 'x'.repeat(64), 'a.ab-'],
  ],
  ['ipv4', ['192.168.0.255'], ['192.168.0.256', '01.2.3.4']],
  ['ipv6', ['2001:db8::1', '1::', '::', '1:2::3:4', '::ffff:1.2.3.4', '1:2:3:4:5:6:7:8'], ['1::2::3', '1:2:3', ':::']],
  [
    'uri',
    ['https://example.com/a/b?c=d#e', 'urn:a:b', "tel:+1-2'", 'http://u:p@[::1]:80/', 'file:///x', 'http://[V1.fe]'],
    ['//a', 'a b', '1:x'],
  ],
  ['uri-reference', ['', '#a', '../b', '//a/b', '/x?y', 'a/b:c'], ['a b', '%zz']],
  ['uri-template', ['/a/{b}{?c,d*}', 'x{+y:3}'], ['{', '{a', '{-a}']],
  ['duration', ['P1Y2M3DT4H', 'PT5M6S', 'P3W'], ['P', 'P1D2Y', 'PT', 'P1YT']],
  ['regex', ['^\\s*(it|de)\\([^"]+$', 'a{2,}?|(?!b)c', '[^a-z\\d-]', '[]\\cA'], ['(', 'a**', '[', '\\']],
  ['json-pointer', ['', '/a~1b/"', '/'], ['a', '/~2']],
  ['byte', ['', 'YQ==', 'YWJj'], ['YQ', 'YQ=', '!']],
])('format %s', (format, valid, invalid) => {
  const validate = validatorOf({ type: 'string', format });
  const tokens = tokensOf({ type: 'string', format });
  const judged = (text: string): unknown => [text, validate(text), matches(tokens, JSON.stringify(text))];
  for (const text of valid) expect(judged(text)).toEqual([text, true, true]);
  for (const text of invalid) expect(judged(text)).toEqual([text, false, false]);
});

test.each(['hostname', 'idn-hostname'])('format %s: no name that needs decoding, none that is too long', (format) => {
  const tokens = tokensOf({ type: 'string', format });
  for (const name of ['a', 'a-b.example', 'A1.b2.c3.d4'])
    expect([name, matches(tokens, `"${name}"`)]).toEqual([name, true]);
  const long = `${'a'.repeat(60)}.`.repeat(4);
  for (const name of ['xn--X', 'ab--c', '-a', 'a-', '', `${long}aaaaaaaaaaaaaa`]) {
    expect([name, matches(tokens, `"${name}"`)]).toEqual([name, false]);
  }
});

test.each<[string, readonly string[], readonly string[]]>([
  ['iri', ['http://ƒøø.ßår/𐌀'], ['http://a b']],
  ['idn-email', [`${'语'.repeat(21)}@a.b`, '𝕏@example.com'], [`${'语'.repeat(22)}@a.b`, `${'𝕏'.repeat(17)}@a.b`]],
])('format %s counts characters beyond ASCII', (format, valid, invalid) => {
  const tokens = tokensOf({ type: 'string', format });
  for (const text of valid) expect([text, matches(tokens, JSON.stringify(text))]).toEqual([text, true]);
  for (const text of invalid) expect([text, matches(tokens, JSON.stringify(text))]).toEqual([text, false]);
});

test.each(['constructor', 'toString', '__proto__'])('format %s is unknown, and constrains nothing', (format) => {
  const tokens = tokensOf({ type: 'string', format });
  expect(matches(tokens, '"any text"')).toBe(true);
  expect(matches(tokens, '1')).toBe(false);
});
