/** Messages as a chat template expects them, with OpenAI's field names. */
import { escapedPattern } from './formats/call-grammar.js';
import { reasoningFormatOf } from './formats/reasoning-formats.js';
import { toolFormatOf } from './formats/tool-formats.js';
import type { ChatMessage, ChatToolCall } from './template.js';

/** What a template does with the parts of messages that templates treat differently. */
export interface MessageFields {
  /** Names under which it looks for reasoning. */
  readonly reasoning: readonly string[];
  /** It takes reasoning as a part of the content. */
  readonly hasThinkingParts: boolean;
  /** The marks around reasoning that it cuts out of the content. */
  readonly inline: readonly [string, string] | undefined;
  /** It refuses text beside reasoning and calls. */
  readonly refusesTextBesideCalls: boolean;
  /** It prints the arguments of calls unchanged, so they have to be text. */
  readonly wantsTextArguments: boolean;
}

const reasoningFields = ['reasoning_content', 'reasoning', 'thinking', 'thought'];

export function messageFieldsOf(source: string, wantsTextArguments: boolean): MessageFields {
  const reasoning = reasoningFields.filter((name) => {
    if (name === 'reasoning_content') return source.includes(name);
    return new RegExp(`\\bmessage(?:\\.${name}\\b|\\[['"]${name}['"]\\]|\\.get\\(['"]${name}['"])`).test(source);
  });
  const format = reasoningFormatOf(source);
  const isCutOut = format !== undefined && new RegExp(`['"]${escapedPattern(format.close)}['"]`).test(source);
  return {
    reasoning,
    hasThinkingParts: /\[?['"]type['"]\]?\s*==\s*['"]thinking['"]|\.type\s*==\s*['"]thinking['"]/.test(source),
    inline: isCutOut ? [format.open, format.close] : undefined,
    refusesTextBesideCalls: toolFormatOf(source).name === 'harmony',
    wantsTextArguments,
  };
}

export function templateMessage(message: ChatMessage, fields: MessageFields): Record<string, unknown> {
  const { toolCalls = [], toolCallId, reasoning = '', images = [], ...rest } = message;
  return {
    ...rest,
    ...(images.length === 0 ? {} : { content: partsOf(message.content, images.length) }),
    ...(reasoning === '' ? {} : withReasoning(message, reasoning, fields)),
    ...(toolCallId === undefined ? {} : { tool_call_id: toolCallId }),
    ...(toolCalls.length === 0 ? {} : { tool_calls: toolCalls.map((call) => templateCall(call, fields)) }),
  };
}

/** As the templates of models that take images expect it: one part per image, then the text. */
function partsOf(text: string, numImages: number): readonly Record<string, unknown>[] {
  return [...Array.from({ length: numImages }, () => ({ type: 'image' })), { type: 'text', text }];
}

function withReasoning(
  { content, toolCalls = [] }: ChatMessage,
  reasoning: string,
  { reasoning: names, hasThinkingParts, inline, refusesTextBesideCalls }: MessageFields,
): Record<string, unknown> {
  if (names.length > 0) {
    const isRefused = refusesTextBesideCalls && toolCalls.length > 0 && content !== '';
    const text = isRefused ? `${reasoning}\n\n${content}` : reasoning;
    return { ...Object.fromEntries(names.map((name) => [name, text])), ...(isRefused ? { content: '' } : {}) };
  }
  if (hasThinkingParts) {
    return {
      content: [
        { type: 'thinking', thinking: reasoning },
        { type: 'text', text: content },
      ],
    };
  }
  if (inline === undefined) return {};
  const [open, close] = inline;
  return { content: `${open}\n${reasoning}\n${close}\n\n${content}` };
}

function templateCall(
  { id, name, arguments: values }: ChatToolCall,
  { wantsTextArguments }: MessageFields,
): Record<string, unknown> {
  return {
    ...(id === undefined ? {} : { id }),
    type: 'function',
    function: { name, arguments: wantsTextArguments ? JSON.stringify(values) : values },
  };
}

/** A conversation with a call, to see how a template prints its arguments. */
export const probeMessages: readonly ChatMessage[] = [
  { role: 'user', content: 'probe' },
  {
    role: 'assistant',
    content: '',
    toolCalls: [{ id: 'call00001', name: 'probe', arguments: { probed: 'value' } }],
  },
  { role: 'tool', content: 'probe', name: 'probe', toolCallId: 'call00001' },
];

/**
 * Whether a template needs the arguments as text rather than as an object. @param asObject the rendered probe,
 * undefined if it was refused
 */
export function prefersText(asObject: string | undefined, asText: string | undefined): boolean {
  if (asText === undefined) return false;
  return asObject === undefined || asObject.includes("{'probed'");
}
