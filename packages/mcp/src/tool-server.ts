/** Where tools come from: a server of the Model Context Protocol, or anything else that answers calls. */
import type { CallToolResult, Tool } from '@modelcontextprotocol/client';

/** Name, description and JSON schemas of a tool, as the protocol has them. */
export type ToolDefinition = Pick<Tool, 'name' | 'description' | 'inputSchema'>;

/** What a tool returns, as the protocol has it: texts, images and other content. */
export type ToolResult = Pick<CallToolResult, 'content' | 'structuredContent' | 'isError'>;

/** Offers tools and answers calls of them. */
export interface ToolServer {
  /** As the server calls itself. */
  readonly name: string;
  /** Its command or URL. */
  readonly address: string;
  readonly isOpen: boolean;
  /** The current tools: servers may add, change and remove some at any time. */
  readonly tools: readonly ToolDefinition[];
  /** Whether a call does no more than ask the user, so that it needs no consent. Default: false. */
  readonly asksUser?: boolean;
  /** @throws the reason of the signal, and an error that the model and the user may read */
  call(name: string, values: Record<string, unknown>, signal: AbortSignal): Promise<ToolResult>;
  close(): Promise<void>;
}
