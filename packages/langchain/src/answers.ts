/**
 * Messages with usage metadata. LangChain's types reject it under `exactOptionalPropertyTypes`, so this file sets it.
 */
import {
  AIMessage,
  AIMessageChunk,
  type AIMessageChunkFields,
  type AIMessageFields,
  type UsageMetadata,
} from '@langchain/core/messages';
import type { InvalidToolCall, ToolCall, ToolCallChunk } from '@langchain/core/messages/tool';
import { makeInvalidToolCall, parseToolCall } from '@langchain/core/output_parsers/openai_tools';
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
  const { content, additional_kwargs, usage_metadata, response_metadata, tool_call_chunks = [] } = chunk;
  const fields: unknown = {
    ...{ content, additional_kwargs, usage_metadata, response_metadata },
    ...callsOf(tool_call_chunks),
  };
  return new AIMessage(fields as AIMessageFields);
}

/** Converts merged chunks to calls. `AIMessageChunk` completes the JSON of truncated arguments; here such a call is invalid. */
function callsOf(chunks: readonly ToolCallChunk[]): Pick<AIMessage, 'tool_calls' | 'invalid_tool_calls'> {
  const calls: ToolCall[] = [];
  const invalid: InvalidToolCall[] = [];
  for (const { id, name, args } of chunks) {
    const raw = { id, type: 'function', function: { name, arguments: args } };
    try {
      calls.push(parseToolCall(raw, { returnId: true }) as ToolCall);
    } catch (error) {
      invalid.push(makeInvalidToolCall(raw, String(error)));
    }
  }
  return { tool_calls: calls, invalid_tool_calls: invalid };
}

/** Converts a part of an answer to a chunk; merging the chunks of a call yields it. @param callIndex number of calls before this one */
export function partChunk(part: ChatPart, callIndex: number): ChatGenerationChunk | undefined {
  switch (part.type) {
    case 'text':
      return new ChatGenerationChunk({ text: part.text, message: new AIMessageChunk({ content: part.text }) });
    case 'reasoning':
      return chunkOf({ content: '', additional_kwargs: { reasoning_content: part.text } });
    case 'tool-call-start':
      return callChunk({ id: part.id, name: part.name, args: '', index: callIndex });
    case 'tool-call-delta':
      return callChunk({ args: part.arguments, index: callIndex });
    case 'tool-call':
      return undefined; // its chunks contain all of it
  }
}

function callChunk(call: Omit<ToolCallChunk, 'type'>): ChatGenerationChunk {
  return chunkOf({ content: '', tool_call_chunks: [{ ...call, type: 'tool_call_chunk' }] });
}

function chunkOf(fields: AIMessageChunkFields): ChatGenerationChunk {
  return new ChatGenerationChunk({ text: '', message: new AIMessageChunk(fields) });
}
