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

test('images stay with their message, and messages that become one have the images of both', () => {
  const image = (name: string) => ({ name, sizeBytes: 1, image: `data:image/png;base64,${name}` });
  const first = said('user', 'First?', { attachments: [image('a'), { name: 'b.txt', sizeBytes: 1, text: 'b' }] });
  const content = 'b.txt:\n```\nb\n```\n\nFirst?';
  expect(promptOf('', [first, said('assistant', 'Yes')])[0]).toEqual({
    ...{ role: 'user', content },
    images: ['data:image/png;base64,a'],
  });
  expect(promptOf('', [first, said('user', 'Second?', { attachments: [image('c')] })])).toEqual([
    {
      ...{ role: 'user', content: `${content}\n\nSecond?` },
      images: ['data:image/png;base64,a', 'data:image/png;base64,c'],
    },
  ]);
});
