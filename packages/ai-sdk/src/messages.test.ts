import { UnsupportedFunctionalityError, type LanguageModelV4ToolResultOutput } from '@ai-sdk/provider';
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

test('images of a message are files in base64 or bytes, and other files are rejected', () => {
  const png = { type: 'file', mediaType: 'image/png' } as const;
  const content = [
    { type: 'text', text: 'Which is ' },
    { ...png, data: { type: 'data', data: 'AQI=' } },
    { ...png, data: { type: 'data', data: Uint8Array.of(3) } },
    { type: 'text', text: 'red?' },
  ] as const;
  expect(chatMessages([{ role: 'user', content: [...content] }])).toEqual([
    { role: 'user', content: 'Which is red?', images: [Uint8Array.of(1, 2), Uint8Array.of(3)] },
  ]);
  for (const file of [
    { ...png, mediaType: 'audio/mp3', data: { type: 'data', data: 'AQI=' } } as const,
    { ...png, data: { type: 'url', url: new URL('https://example.com/a.png') } } as const,
  ]) {
    expect(() => chatMessages([{ role: 'user', content: [file] }])).toThrow(UnsupportedFunctionalityError);
  }
});
