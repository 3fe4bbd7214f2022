import type { GenerateOptions, ChatMessage as EngineMessage } from '@winnow/engine';
import type { GenerativeModel } from './options.js';
export type JsonSchema = Record<string, unknown>;
export interface ChatToolCall {
  id?: string;
  name: string;
  arguments: Readonly<Record<string, unknown>>;
}
export interface ChatMessage extends EngineMessage {
  toolCalls?: readonly ChatToolCall[];
  toolCallId?: string;
  name?: string;
}
export interface ChatTool {
  name: string;
  description?: string;
  parameters?: JsonSchema;
}
export type ToolChoice = 'auto' | 'none' | 'required' | { readonly name: string };
export interface ChatRequest {
  messages: readonly ChatMessage[];
  tools?: readonly ChatTool[];
  toolChoice?: ToolChoice;
  parallelToolCalls?: boolean;
  jsonSchema?: JsonSchema;
  templateVariables?: Record<string, unknown>;
}
export type ChatPart =
  | { type: 'text'; text: string }
  | { type: 'tool-call'; id: string; name: string; arguments: string };
export interface ChatReader {
  push(text: string): readonly ChatPart[];
  end(): readonly ChatPart[];
}
export interface ChatTurn {
  prompt: Int32Array;
  options: GenerateOptions;
  createReader(): ChatReader;
}
export function prepareChat(model: Pick<GenerativeModel, 'encodePrompt'>, request: ChatRequest): ChatTurn {
  return {
    prompt: model.encodePrompt(request.messages),
    options: {},
    createReader: () => ({ push: (text) => [{ type: 'text', text }], end: () => [] }),
  };
}
