/** Where tools come from: a server of the Model Context Protocol, or anything else that answers calls. */

/** Name, description and JSON schema of the arguments of a tool, in the format of the protocol. */
export interface ToolDefinition {
  readonly name: string;
  readonly description?: string | undefined;
  readonly inputSchema: { readonly type: 'object'; readonly [key: string]: unknown };
}

/** A part of what a tool returns. `data` and `blob` are base64. */
export type ToolContent =
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'image' | 'audio'; readonly data: string; readonly mimeType: string }
  | { readonly type: 'resource_link'; readonly name: string; readonly uri: string }
  | { readonly type: 'resource'; readonly resource: ToolResource };

export type ToolResource =
  | { readonly uri: string; readonly text: string }
  | { readonly uri: string; readonly blob: string; readonly mimeType?: string | undefined };

/** What a tool returns, in the format of the protocol. */
export interface ToolResult {
  readonly content: readonly ToolContent[];
  readonly structuredContent?: unknown;
  readonly isError?: boolean | undefined;
}

/** Offers tools and answers calls of them. */
export interface ToolServer {
  /** The server's own name. */
  readonly name: string;
  /** Its command or URL. */
  readonly address: string;
  readonly isOpen: boolean;
  /** The current tools: servers may add, change and remove some at any time. */
  readonly tools: readonly ToolDefinition[];
  /** Whether a call only asks the user something, and therefore needs no consent. Default: false. */
  readonly asksUser?: boolean;
  /** @throws the reason of the signal, or an error whose message the model and the user may read */
  call(name: string, values: Record<string, unknown>, signal: AbortSignal): Promise<ToolResult>;
  close(): Promise<void>;
}
