/** Converts prompts of the AI SDK to conversations of the engine. */
import {
  UnsupportedFunctionalityError,
  type LanguageModelV4Message,
  type LanguageModelV4Prompt,
  type LanguageModelV4ToolResultOutput,
} from '@ai-sdk/provider';
import type { ChatMessage, ChatToolCall } from '@winnow/engine';
import { ArgumentError, describeValue, isRecord } from '@winnow/tensor';

/** @throws {UnsupportedFunctionalityError} for content that is not text */
export function chatMessages(prompt: LanguageModelV4Prompt): ChatMessage[] {
  return prompt.flatMap(chatMessage);
}

function chatMessage(message: LanguageModelV4Message): ChatMessage[] {
  switch (message.role) {
    case 'system':
      return [{ role: 'system', content: message.content }];
    case 'user':
      return [userMessage(message.content)];
    case 'assistant': {
      const texts: string[] = [];
      const thoughts: string[] = [];
      const toolCalls: ChatToolCall[] = [];
      for (const part of message.content) {
        if (part.type === 'tool-call') {
          toolCalls.push({ id: part.toolCallId, name: part.toolName, arguments: argumentsOf(part.input) });
        } else if (part.type === 'reasoning') thoughts.push(part.text);
        else texts.push(textOf(part));
      }
      const reasoning = thoughts.length === 0 ? {} : { reasoning: thoughts.join('') };
      const calls = toolCalls.length === 0 ? {} : { toolCalls };
      return [{ role: 'assistant', content: texts.join(''), ...reasoning, ...calls }];
    }
    case 'tool':
      return message.content.map((part) => {
        if (part.type !== 'tool-result') throw unsupported(part.type);
        const { toolCallId, toolName, output } = part;
        return { role: 'tool', content: resultText(output), toolCallId, name: toolName };
      });
  }
}

type UserContent = Extract<LanguageModelV4Message, { role: 'user' }>['content'];

/** Converts a user message; its images come before the text. */
function userMessage(content: UserContent): ChatMessage {
  const images: Uint8Array[] = [];
  const texts: string[] = [];
  for (const part of content) {
    if (part.type === 'file' && /^image(\/|$)/.test(part.mediaType)) images.push(imageOf(part.data));
    else texts.push(textOf(part));
  }
  return { role: 'user', content: texts.join(''), ...(images.length === 0 ? {} : { images }) };
}

type FileData = Extract<UserContent[number], { type: 'file' }>['data'];

/** The SDK fetches URLs itself, since the model supports none. */
function imageOf(file: FileData): Uint8Array {
  if (file.type !== 'data') throw unsupported(`image as ${file.type}`);
  const { data } = file;
  if (data instanceof Uint8Array) return data;
  return Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
}

function textOf(part: { readonly type: string; readonly text?: string }): string {
  if (part.type !== 'text' || part.text === undefined) throw unsupported(part.type);
  return part.text;
}

function resultText(output: LanguageModelV4ToolResultOutput): string {
  switch (output.type) {
    case 'text':
    case 'error-text':
      return output.value;
    case 'json':
    case 'error-json':
      return JSON.stringify(output.value);
    case 'execution-denied':
      return output.reason ?? 'The call was not allowed.';
    case 'content':
      return output.value.map((part) => textOf(part)).join('');
  }
}

function argumentsOf(input: unknown): Record<string, unknown> {
  const value: unknown = typeof input === 'string' ? JSON.parse(input) : input;
  if (isRecord(value)) return value;
  throw new ArgumentError({ argument: 'input of a tool call', expected: 'an object', actual: describeValue(value) });
}

function unsupported(type: string): UnsupportedFunctionalityError {
  return new UnsupportedFunctionalityError({ functionality: `content of type ${type}` });
}
