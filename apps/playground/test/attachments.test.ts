import { expect, test } from 'vitest';
import { promptText, readAttachment } from '../page/state/attachments.js';

test('a text is read as it is; images, other bytes and large files are refused with what was found', async () => {
  expect(await readAttachment(new File(['Grüße\n'], 'a.txt'))).toEqual({
    name: 'a.txt',
    sizeBytes: 8,
    text: 'Grüße\n',
  });
  for (const [file, message] of [
    [new File(['x'], 'cat.png', { type: 'image/png' }), 'cat.png: the model does not take images'],
    [new File([Uint8Array.of(0xff)], 'a.bin'), 'a.bin: expected text in UTF-8'],
    [new File(['a\0b'], 'zero'), 'zero: expected text in UTF-8'],
    [new File(['a'.repeat(4_000_001)], 'long.txt'), 'long.txt: expected a text of at most 4 MB, got 4.0 MB'],
  ] as const) {
    await expect(readAttachment(file)).rejects.toThrow(message);
  }
});

test('attachments come before the text, in fences that they cannot close', () => {
  const attachment = (name: string, text: string) => ({ name, text, sizeBytes: text.length });
  expect(promptText('Why?', [attachment('a.md', '```\nx\n```'), attachment('b', 'y\n')])).toBe(
    'a.md:\n````\n```\nx\n```\n````\n\nb:\n```\ny\n```\n\nWhy?',
  );
  expect(promptText('Why?')).toBe('Why?');
});
