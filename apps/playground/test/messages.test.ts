import { expect, test } from 'vitest';
import type { Message } from '../page/state/messages.js';
import { promptOf } from '../page/state/prompt.js';

const said = (role: Message['role'], content: string, more: Partial<Message> = {}): Message => ({
  ...{ role, content, reasoning: '', state: 'done' },
  ...more,
});

test('the prompt has no answer without text, and never two messages of the user in a row', () => {
  const messages = [
    said('user', 'First?'),
    said('assistant', ''),
    said('user', 'Second?'),
    said('assistant', 'Half an'),
    said('user', 'Third?'),
    said('assistant', ' \n'),
  ];
  expect(promptOf(' ', messages)).toEqual([
    { role: 'user', content: 'First?\n\nSecond?' },
    { role: 'assistant', content: 'Half an' },
    { role: 'user', content: 'Third?' },
  ]);
  expect(promptOf('Be brief.', messages.slice(0, 1))).toEqual([
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'First?' },
  ]);
});

test('calls keep their reasoning, and each has a result', () => {
  const call = { id: 'c1', name: 'add', arguments: '{}' };
  const calls = [
    { ...call, result: '3' },
    { ...call, id: 'c2' },
  ];
  expect(promptOf('', [said('user', 'Add'), said('assistant', '', { reasoning: 'Hm', calls })])).toEqual([
    { role: 'user', content: 'Add' },
    { role: 'assistant', content: '', reasoning: 'Hm', toolCalls: [call, { ...call, id: 'c2' }] },
    { role: 'tool', content: '3', toolCallId: 'c1', name: 'add' },
    { role: 'tool', content: 'Error: the user stopped this call.', toolCallId: 'c2', name: 'add' },
  ]);
});
