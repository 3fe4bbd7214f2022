/** Messages that carry usage. LangChain's types take none where `exactOptionalPropertyTypes` is on, so they are told here. */
import { AIMessage, AIMessageChunk, type AIMessageFields, type UsageMetadata } from '@langchain/core/messages';
import { ChatGenerationChunk } from '@langchain/core/outputs';
import type { ChatPart } from '@winnow/engine';

/** The last chunk of an answer: what is known at its end. */
export function closingChunk(usage: UsageMetadata, metadata: Record<string, unknown>): ChatGenerationChunk {
  const fields: unknown = { content: '', usage_metadata: usage, response_metadata: metadata };
  return new ChatGenerationChunk({ text: '', message: new AIMessageChunk(fields as AIMessageFields) });
}

export function usageOfMessage(message: AIMessageChunk): UsageMetadata | undefined {
  return message.usage_metadata as UsageMetadata | undefined;
}

/** The whole answer, from the sum of its chunks. */
export function toMessage(chunk: AIMessageChunk): AIMessage {
  const { content, usage_metadata, response_metadata, tool_calls, invalid_tool_calls } = chunk;
  const fields: unknown = { content, usage_metadata, response_metadata, tool_calls, invalid_tool_calls };
  return new AIMessage(fields as AIMessageFields);
}

/** A piece of an answer as a chunk: text, or a whole call of a tool. */
export function partChunk(part: ChatPart, toolIndex: number): ChatGenerationChunk {
  if (part.type === 'text') {
    return new ChatGenerationChunk({ text: part.text, message: new AIMessageChunk({ content: part.text }) });
  }
  const { id, name, arguments: args } = part;
  const call = { id, name, args, index: toolIndex, type: 'tool_call_chunk' } as const;
  return new ChatGenerationChunk({ text: '', message: new AIMessageChunk({ content: '', tool_call_chunks: [call] }) });
}
