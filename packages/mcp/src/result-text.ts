/** What a tool returned, as text for the model. */
import type { ToolResult } from './tool-server.js';

/** Texts unchanged, other content by its kind; an error begins with `Error:`. */
export function resultText({ content, structuredContent, isError }: ToolResult): string {
  const texts = content.map(blockText);
  if (texts.length === 0 && structuredContent !== undefined) texts.push(JSON.stringify(structuredContent));
  return `${isError === true ? 'Error: ' : ''}${texts.join('\n')}`;
}

function blockText(block: ToolResult['content'][number]): string {
  switch (block.type) {
    case 'text':
      return block.text;
    case 'image':
    case 'audio':
      return `[${block.type}: ${block.mimeType}, ${numBytes(block.data)} bytes]`;
    case 'resource_link':
      return `[link: ${block.name}, ${block.uri}]`;
    case 'resource': {
      const { resource } = block;
      if ('text' in resource) return resource.text;
      return `[file: ${resource.uri}, ${resource.mimeType ?? 'unknown type'}, ${numBytes(resource.blob)} bytes]`;
    }
  }
}

function numBytes(base64: string): number {
  return Math.floor((base64.replace(/=+$/, '').length * 3) / 4);
}
