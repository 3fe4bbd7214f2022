export { callText, visibleText, type CallRequest, type CallText, type Consent } from './consent.js';
export { resultText } from './result-text.js';
export type { ToolContent, ToolDefinition, ToolResource, ToolResult, ToolServer } from './tool-server.js';
export {
  Toolbox,
  type ListedServer,
  type ListedTool,
  type OfferedTool,
  type OfferedTools,
  type ToolCall,
  type ToolHost,
} from './toolbox.js';
