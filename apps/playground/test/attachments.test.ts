import { expect, test } from 'vitest';
import { bytesOfDataUrl, dataUrlOf } from '../page/backend/data-url.js';
import { promptText, readText } from '../page/state/attachments.js';
import { checkImageBytes, readImage } from '../page/state/images.js';

test('a text is read as it is; other bytes and large files are refused with what was found', async () => {
  expect(await readText(new File(['Grüße\n'], 'a.txt'))).toEqual({
    name: 'a.txt',
    sizeBytes: 8,
    text: 'Grüße\n',
  });
  for (const [file, message] of [
    [new File([Uint8Array.of(0xff)], 'a.bin'), 'a.bin: expected text in UTF-8'],
    [new File(['a\0b'], 'zero'), 'zero: expected text in UTF-8'],
    [new File(['a'.repeat(4_000_001)], 'long.txt'), 'long.txt: expected a text of at most 4 MB, got 4.0 MB'],
  ] as const) {
    await expect(readText(file)).rejects.toThrow(message);
  }
});

test('attachments come before the text, in fences that they cannot close', () => {
  const attachment = (name: string, text: string) => ({ name, text, sizeBytes: text.length });
  const image = { name: 'a.png', sizeBytes: 1, image: 'data:image/png;base64,AA==' };
  expect(promptText('Why?', [attachment('a.md', '```\nx\n```'), image, attachment('b', 'y\n')])).toBe(
    'a.md:\n````\n```\nx\n```\n````\n\nb:\n```\ny\n```\n\nWhy?',
  );
  expect(promptText('Why?')).toBe('Why?');
});

test('an image becomes a data: URL, a large one as it is drawn; what is none, and more than a conversation keeps, is refused', async () => {
  const png = Uint8Array.from({ length: 20_000 }, (_, at) => at & 255);
  png.set([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 13, 73, 72, 68, 82, 0, 0, 0, 2, 0, 0, 0, 3]);
  const draw = (): Promise<Blob> => Promise.resolve(new Blob(['drawn']));
  const { image, ...others } = await readImage(new File([png], 'a.png', { type: 'image/png' }), draw);
  expect(others).toEqual({ name: 'a.png', sizeBytes: 20_000 });
  expect(image).toBe(`data:image/png;base64,${Buffer.from(png).toString('base64')}`);
  expect(bytesOfDataUrl(dataUrlOf(png, 'image/png'))).toEqual(png);
  const large = new Uint8Array(1_000_001);
  large.set(png);
  const drawn = { name: 'c.png', sizeBytes: 5, image: 'data:image/jpeg;base64,ZHJhd24=' };
  expect(await readImage(new File([large], 'c.png', { type: 'image/png' }), draw)).toEqual(drawn);
  const wrong = readImage(new File(['GIF89a'], 'b.gif', { type: 'image/gif' }), draw);
  await expect(wrong).rejects.toThrow('b.gif: format: expected a PNG, JPEG or WebP file');
  const kept = { name: 'a.png', sizeBytes: 4_000_000, image };
  checkImageBytes('b.png', [kept, kept]);
  const tooMany = [kept, kept, { ...kept, sizeBytes: 100_000 }];
  expect(() => checkImageBytes('b.png', tooMany)).toThrow('b.png: expected at most 8 MB, got 8.1 MB of images in one');
});
