import type { LanguageModelV4ToolResultOutput } from '@ai-sdk/provider';
import { expect, test } from 'vitest';
import { chatMessages } from './messages.js';

test.each<[LanguageModelV4ToolResultOutput, string]>([
  [{ type: 'text', value: 'sunny' }, 'sunny'],
  [{ type: 'error-text', value: 'no such city' }, 'no such city'],
  [{ type: 'json', value: { days: 2 } }, '{"days":2}'],
  [{ type: 'error-json', value: { code: 4 } }, '{"code":4}'],
  [{ type: 'execution-denied', reason: 'not now' }, 'not now'],
  [{ type: 'execution-denied' }, 'The call was not allowed.'],
  [
    {
      type: 'content',
      value: [
        { type: 'text', text: 'sun' },
        { type: 'text', text: 'ny' },
      ],
    },
    'sunny',
  ],
])('the result of a tool %j becomes the text of a message', (output, content) => {
  const result = { type: 'tool-result', toolCallId: '1', toolName: 'weather', output } as const;
  expect(chatMessages([{ role: 'tool', content: [result] }])).toEqual([
    { role: 'tool', content, toolCallId: '1', name: 'weather' },
  ]);
});
