/** How a model writes its answers, by the marks of its chat template. */
import { reasoningFormatOf, type ReasoningFormat } from './reasoning-formats.js';
import type { ToolFormatRow } from './tool-format.js';
import { toolFormat, toolFormatOf } from './tool-formats.js';

export interface ChatFormat {
  readonly tools: ToolFormatRow;
  /** The template describes tools to the model; otherwise a system message does. */
  readonly describesTools: boolean;
  /** The template writes calls and their results. */
  readonly writesCalls: boolean;
  readonly reasoning: ReasoningFormat | undefined;
  /** Variables that switch reasoning on and off. */
  readonly thinkingVariables: readonly string[];
  readonly hasEffort: boolean;
}

const thinkingVariables = ['enable_thinking', 'thinking', 'enable_reasoning'];

export function chatFormatOf(source: string): ChatFormat {
  const describesTools = /\b(?:tools|available_tools|custom_tools)\b/.test(source);
  const known = toolFormatOf(source);
  const isKnown = known.name !== 'generic' && (describesTools || known.name !== 'llama');
  return {
    tools: isKnown || describesTools ? known : toolFormat('hermes'),
    describesTools,
    writesCalls: describesTools || (isKnown && /\btool_calls\b/.test(source)),
    reasoning: known.name === 'harmony' ? undefined : reasoningFormatOf(source),
    thinkingVariables: thinkingVariables.filter((name) => new RegExp(`\\b${name}\\b`).test(source)),
    hasEffort: /\breasoning_effort\b/.test(source),
  };
}

/** The model may reason before it answers. */
export function canReason({ reasoning, tools, hasEffort }: ChatFormat): boolean {
  return reasoning !== undefined || tools.name === 'harmony' || hasEffort;
}
