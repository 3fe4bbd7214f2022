/**
 * Messages with usage metadata. LangChain's types reject it under `exactOptionalPropertyTypes`, so this file sets it.
 */
import { AIMessage, AIMessageChunk, type AIMessageFields, type UsageMetadata } from '@langchain/core/messages';
import { ChatGenerationChunk } from '@langchain/core/outputs';
import type { ChatPart } from '@winnow/engine';

/** The last chunk of an answer, with its metadata. */
export function closingChunk(usage: UsageMetadata, metadata: Record<string, unknown>): ChatGenerationChunk {
  const fields: unknown = { content: '', usage_metadata: usage, response_metadata: metadata };
  return new ChatGenerationChunk({ text: '', message: new AIMessageChunk(fields as AIMessageFields) });
}

export function usageOfMessage(message: AIMessageChunk): UsageMetadata | undefined {
  return message.usage_metadata as UsageMetadata | undefined;
}

/** The complete answer, merged from its chunks. */
export function toMessage(chunk: AIMessageChunk): AIMessage {
  const { content, usage_metadata, response_metadata, tool_calls, invalid_tool_calls } = chunk;
  const fields: unknown = { content, usage_metadata, response_metadata, tool_calls, invalid_tool_calls };
  return new AIMessage(fields as AIMessageFields);
}

/** A part of an answer as a chunk: text, or a complete tool call. */
export function partChunk(part: ChatPart, toolIndex: number): ChatGenerationChunk {
  if (part.type === 'text') {
    return new ChatGenerationChunk({ text: part.text, message: new AIMessageChunk({ content: part.text }) });
  }
  const { id, name, arguments: args } = part;
  const call = { id, name, args, index: toolIndex, type: 'tool_call_chunk' } as const;
  return new ChatGenerationChunk({ text: '', message: new AIMessageChunk({ content: '', tool_call_chunks: [call] }) });
}
