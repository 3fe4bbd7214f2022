/** What a model reads of a conversation. */
import type { PromptMessage } from '../backend/contract.js';
import { promptText } from './attachments.js';
import type { Message } from './messages.js';

/**
 * The messages that the model reads, after the system prompt if there is one. An answer with neither text nor calls, such
 * as one that failed, is left out; messages of the user that follow each other become one, since templates expect turns.
 */
export function promptOf(systemPrompt: string, messages: readonly Message[]): readonly PromptMessage[] {
  const prompt: PromptMessage[] = systemPrompt.trim() === '' ? [] : [{ role: 'system', content: systemPrompt }];
  for (const message of messages) {
    if (message.role === 'assistant') {
      prompt.push(...answerPrompt(message));
      continue;
    }
    const last = prompt.at(-1);
    const said = userPrompt(message);
    if (last?.role === 'user') prompt[prompt.length - 1] = joined(last, said);
    else prompt.push(said);
  }
  return prompt;
}

type UserPrompt = Extract<PromptMessage, { role: 'user' }>;

function userPrompt({ content, attachments = [] }: Message): UserPrompt {
  const images = attachments.flatMap((attachment) => ('image' in attachment ? [attachment.image] : []));
  const text = promptText(content, attachments);
  return { role: 'user', content: text, ...(images.length === 0 ? {} : { images }) };
}

function joined(first: UserPrompt, second: UserPrompt): UserPrompt {
  const images = [...(first.images ?? []), ...(second.images ?? [])];
  const content = `${first.content}\n\n${second.content}`;
  return { role: 'user', content, ...(images.length === 0 ? {} : { images }) };
}

/** An answer, and the results of its calls: templates expect one for each. */
function answerPrompt({ content, reasoning, calls = [] }: Message): readonly PromptMessage[] {
  if (content.trim() === '' && calls.length === 0) return [];
  const toolCalls = calls.map(({ id, name, arguments: text }) => ({ id, name, arguments: text }));
  const answer: PromptMessage = {
    role: 'assistant',
    content,
    ...(reasoning === '' ? {} : { reasoning }),
    ...(toolCalls.length === 0 ? {} : { toolCalls }),
  };
  const results = calls.map(({ id, name, result = 'Error: the user stopped this call.' }) => ({
    role: 'tool' as const,
    content: result,
    toolCallId: id,
    name,
  }));
  return [answer, ...results];
}
