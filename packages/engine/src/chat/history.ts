/** Conversations as chat templates expect them. */
import type { ChatFormat } from './formats/chat-format.js';
import type { ToolFormatRow } from './formats/tool-format.js';
import { templateTool, type ChatMessage, type ChatTool } from './template.js';

/**
 * Where the template does not write calls, they become text; where it does not describe tools, a system message does,
 * in the model's own format if its template shows one.
 */
export function messagesFor(
  format: ChatFormat,
  messages: readonly ChatMessage[],
  tools: readonly ChatTool[],
): readonly ChatMessage[] {
  const written = format.writesCalls ? messages : messages.map(plainMessage);
  return format.describesTools || tools.length === 0 ? written : withTools(written, toolText(tools, format.tools));
}

function plainMessage({ role, content, reasoning, images, toolCalls = [] }: ChatMessage): ChatMessage {
  if (role === 'tool') return { role: 'user', content: `<tool_response>\n${content}\n</tool_response>` };
  const calls = toolCalls.map(
    (call) => `<tool_call>\n${JSON.stringify({ name: call.name, arguments: call.arguments })}\n</tool_call>`,
  );
  const text = [content, ...calls].filter((part) => part !== '').join('\n');
  const shown = images === undefined ? {} : { images };
  return { role, content: text, ...shown, ...(reasoning === undefined ? {} : { reasoning }) };
}

function withTools(messages: readonly ChatMessage[], description: string): readonly ChatMessage[] {
  const [first, ...rest] = messages;
  const isSystem = first?.role === 'system';
  const content = `${isSystem ? `${first.content}\n\n` : ''}${description}`;
  return [{ role: 'system', content }, ...(isSystem ? rest : messages)];
}

function toolText(tools: readonly ChatTool[], { written }: ToolFormatRow): string {
  const { start = '', before, call, after } = written;
  const example = `${start}${before}${call}${after}`.replace('{name}', '<name>').replace('{arguments}', '<object>');
  return [
    'You can call these tools, given as JSON:',
    '<tools>',
    ...tools.map((tool) => JSON.stringify(templateTool(tool))),
    '</tools>',
    'Call one by writing its name and arguments in this form:',
    example.replace('"<name>"', '<name>'),
  ].join('\n');
}
