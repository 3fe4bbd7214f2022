import { expect, test } from 'vitest';
import { callText, visibleText } from './consent.js';

test('hidden characters become escapes; visible ones stay', () => {
  expect(visibleText('a\u0007b\u009b\u202e\u2028\u200b\u3164\u{e0041}\r\n\tü漢')).toBe(
    'a\\u0007b\\u009b\\u{202e}\\u{2028}\\u{200b}\\u{3164}\\u{e0041}\\u000d\n\tü漢',
  );
});

test('control, format and ignorable characters are never hidden', () => {
  const codes = Array.from({ length: 0x110000 }, (_, code) => code).filter((code) => code < 0xd800 || code > 0xdfff);
  const all = codes.map((code) => String.fromCodePoint(code)).join('');
  expect(visibleText(all)).not.toMatch(/(?![\n\t])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/u);
});

test('a call is shown completely', () => {
  const values = { text: `${'long '.repeat(5000)}\u202eend`, nested: { list: [1, 'two'] } };
  const shown = callText({ server: { name: 'a"\u001b', address: 'http://b\u200b' }, tool: 'c\nd', arguments: values });
  expect(shown.server).toBe('"a\\"\\u001b" (http://b\\u{200b})');
  expect(JSON.parse(shown.arguments.replace('\\u{202e}', '\\u202e'))).toEqual(values);
});
