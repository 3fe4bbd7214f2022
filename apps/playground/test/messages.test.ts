import { expect, test } from 'vitest';
import { promptOf } from '../page/state/messages.js';

test('the prompt has no answer without text, and never two messages of the user in a row', () => {
  const said = [
    { role: 'user', content: 'First?' },
    { role: 'assistant', content: '' },
    { role: 'user', content: 'Second?' },
    { role: 'assistant', content: 'Half an' },
    { role: 'user', content: 'Third?' },
    { role: 'assistant', content: ' \n' },
  ] as const;
  expect(promptOf(' ', said)).toEqual([
    { role: 'user', content: 'First?\n\nSecond?' },
    { role: 'assistant', content: 'Half an' },
    { role: 'user', content: 'Third?' },
  ]);
  expect(promptOf('Be brief.', said.slice(0, 1))).toEqual([{ role: 'system', content: 'Be brief.' }, said[0]]);
});
