/** How models of different families write tool calls, and which format a chat template uses. */
import { literal, optional, repeat, ruleReference, sequence, textWithout, type GrammarNode } from '@winnow/grammar';

/**
 * - `hermes`: `<tool_call>{"name": ..., "arguments": ...}</tool_call>`, as Hermes, Qwen and others;
 * - `llama`: `{"name": ..., "parameters": ...}` as the whole answer, as Llama 3.1 and later;
 * - `mistral`: `[TOOL_CALLS][{"name": ..., "arguments": ...}]`;
 * - `mistral-args`: `[TOOL_CALLS]name[ARGS]{...}`, as Mistral since version 11 of its tokenizer.
 */
export type ToolFormat = 'hermes' | 'llama' | 'mistral' | 'mistral-args';

export interface FormatFacts {
  /** Tokens that must stay visible if they are control tokens of the vocabulary. */
  readonly tokens: readonly string[];
  /** How a call names its arguments. */
  readonly argumentsName: 'arguments' | 'parameters';
  /** A regular expression that finds the beginning of a call. */
  readonly begin: string;
}

export const formatFacts: Readonly<Record<ToolFormat, FormatFacts>> = {
  hermes: { tokens: ['<tool_call>', '</tool_call>'], argumentsName: 'arguments', begin: '<tool_call>' },
  llama: { tokens: ['<|python_tag|>'], argumentsName: 'parameters', begin: '^\\s*\\{|<\\|python_tag\\|>' },
  mistral: { tokens: ['[TOOL_CALLS]'], argumentsName: 'arguments', begin: '\\[TOOL_CALLS\\]' },
  'mistral-args': { tokens: ['[TOOL_CALLS]', '[ARGS]'], argumentsName: 'arguments', begin: '\\[TOOL_CALLS\\]' },
};

/** The format of the template; undefined if it does not support tools or uses an unknown format. */
export function formatOfTemplate(source: string): ToolFormat | undefined {
  if (!/\btools\b/.test(source)) return undefined;
  if (source.includes('[TOOL_CALLS]')) return source.includes('[ARGS]') ? 'mistral-args' : 'mistral';
  if (source.includes('<tool_call>')) return 'hermes';
  if (source.includes('<|python_tag|>') || source.includes('ipython') || source.includes('"parameters":'))
    return 'llama';
  return undefined;
}

/** A tool and the grammar of its arguments. */
export interface ToolNode {
  readonly name: string;
  readonly arguments: GrammarNode;
}

/** One call or, if the format supports it, several. */
export function callsNode(
  format: ToolFormat,
  tools: readonly ToolNode[],
  rules: Map<string, GrammarNode>,
  space: GrammarNode,
  isParallel: boolean,
): GrammarNode {
  const { argumentsName } = formatFacts[format];
  const objectOf = (tool: ToolNode): GrammarNode =>
    sequence(
      ...[literal('{'), space, literal('"name":'), space, literal(JSON.stringify(tool.name)), literal(','), space],
      ...[literal(`"${argumentsName}":`), space, tool.arguments, space, literal('}')],
    );
  const alternatives = tools.map((tool) =>
    format === 'mistral-args' ? sequence(literal(`${tool.name}[ARGS]`), tool.arguments) : objectOf(tool),
  );
  rules.set('call', { kind: 'choice', alternatives });
  const call = ruleReference('call');
  const more = (item: GrammarNode): GrammarNode => repeat(item, 0, isParallel ? undefined : 0);
  switch (format) {
    case 'hermes': {
      const line = optional(literal('\n'));
      const whole = sequence(literal('<tool_call>'), line, call, line, literal('</tool_call>'));
      return sequence(whole, more(sequence(line, whole)));
    }
    case 'llama':
      return sequence(optional(literal('<|python_tag|>')), call);
    case 'mistral':
      return sequence(
        literal('[TOOL_CALLS]'),
        optional(literal(' ')),
        literal('['),
        call,
        more(sequence(literal(','), space, call)),
        literal(']'),
      );
    case 'mistral-args':
      return sequence(literal('[TOOL_CALLS]'), call, more(sequence(literal('[TOOL_CALLS]'), call)));
  }
}

/** Any text that cannot be parsed as a call. */
export function freeText(format: ToolFormat, rules: Map<string, GrammarNode>): GrammarNode {
  return textWithout(rules, 'text', formatFacts[format].begin);
}
