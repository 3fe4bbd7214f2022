/** The gate of `console` blocks rejects what a command does not print. */
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { checkTranscripts, extractTranscripts } from '../src/documents/transcripts.ts';
import { addFiles, createFolder } from './fixture.ts';

const block = (text: string, mark = ''): string => `# A guide\n\n\`\`\`console${mark}\n${text}\`\`\`\n`;

test.skipIf(process.platform === 'win32')('outputs of winnow are compared with those of the program', () => {
  const folder = createFolder({
    'winnow.mjs':
      "console.log(process.argv.slice(2).join('|')); console.error('1.5 s'); process.exitCode = process.argv[2] === 'fail' ? 3 : 0;",
  });
  const check = (document: string): string[] => {
    addFiles(folder, { 'guide.md': document });
    const [scratch, winnow] = [join(folder, 'scratch'), join(folder, 'winnow.mjs')];
    return checkTranscripts([join(folder, 'guide.md')], scratch, winnow, ['run', "a 'captain'"]);
  };
  expect(check(block("$ winnow run 'a b' # once\nrun|a b\n... s\n$ winnow other\n"))).toEqual([]);
  expect(check(block("$ winnow run '{\n  a}' \\\n  -n 1\nrun|{ a}|-n|1\n1.5 s\n"))).toEqual([]);
  expect(check(block('$ winnow a\n$ winnow run\nrin\n1.5 s\n'))).toEqual([
    'guide.md:5: the document shows\nrin\n1.5 s\nthe command prints\nrun\n1.5 s',
  ]);
  expect(check(block('$ winnow fail\nfail\n1.5 s\n'))).toEqual([
    'guide.md:4: the command ends with code 3:\nfail\n1.5 s',
  ]);
  expect(check(block('$ winnow run\nnothing\n', ' no-run'))).toEqual([]);
  expect(check(block("$ npm run demo\n...\nrun|a 'captain'\n... s\n"))).toEqual([]);
  expect(check(block('$ npm run demo\nanother text\n'))).toHaveLength(1);
});

test('outputs of other programs are marked', () => {
  expect(() => extractTranscripts(block('$ winnow a\n$ curl b\n{}\n'))).toThrow('line 5: only the output of winnow');
  expect(extractTranscripts(block('$ curl b\n{}\n', ' no-run'))).toEqual([]);
});
