import { expect, test } from 'vitest';
import { AnswerBuilder } from '../page/state/answer.js';

test('an answer collects its events and the time between its first and last text', () => {
  let time = 100;
  const builder = new AnswerBuilder('m', () => time);
  builder.push({ type: 'reasoning', text: 'Hm' });
  time = 350;
  builder.push({ type: 'text', text: 'Yes' });
  time = 900;
  builder.push({ type: 'tokens', tokens: [{ text: 'Yes', logprob: -1, alternatives: [] }] });
  expect(builder.message('streaming')).toMatchObject({ content: 'Yes', reasoning: 'Hm', state: 'streaming' });
  builder.push({ type: 'end', reason: 'length' });
  expect(builder.message()).toEqual({
    role: 'assistant',
    content: 'Yes',
    reasoning: 'Hm',
    state: 'cut',
    model: 'm',
    tokens: [{ text: 'Yes', logprob: -1, alternatives: [] }],
    durationMs: 250,
  });
  expect(builder.message('failed', 'why')).toMatchObject({ state: 'failed', error: 'why' });
});
