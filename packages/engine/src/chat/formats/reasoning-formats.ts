/** How models mark their reasoning, as data. */

export interface ReasoningFormat {
  readonly open: string;
  /** Follows `open`, which does not begin reasoning without it. */
  readonly label?: string;
  readonly close: string;
  /** A template has one of these. */
  readonly marks: readonly string[];
  /** Reasoning may begin anywhere in an answer, since its mark is a token of its own. Default: only where it begins. */
  readonly isAnywhere?: boolean;
  /** A call ends the reasoning, too. */
  readonly endsAtCalls?: boolean;
  /** Texts beside the answer that are not part of it. */
  readonly ignored?: readonly string[];
}

/** The first row whose marks a template has is its format. */
export const reasoningFormats: readonly ReasoningFormat[] = [
  { open: '[THINK]', close: '[/THINK]', marks: ['[THINK]'], isAnywhere: true },
  { open: '<seed:think>', close: '</seed:think>', marks: ['<seed:think>'] },
  {
    open: '<|START_THINKING|>',
    close: '<|END_THINKING|>',
    marks: ['<|START_THINKING|>'],
    isAnywhere: true,
  },
  {
    open: '<|channel>',
    label: 'thought',
    close: '<channel|>',
    marks: ['<|channel>'],
    isAnywhere: true,
    ignored: ['<channel|>'],
  },
  { open: '<|inner_prefix|>', close: '<|inner_suffix|>', marks: ['<|inner_prefix|>'], isAnywhere: true },
  {
    open: 'Here are my reasoning steps:',
    close: '[BEGIN FINAL RESPONSE]',
    marks: ['[BEGIN FINAL RESPONSE]'],
    ignored: ['[END FINAL RESPONSE]', '<|end|>'],
  },
  {
    open: '<think>',
    close: '</think>',
    marks: ['<|tool_calls_section_begin|>'],
    endsAtCalls: true,
  },
  {
    open: '<think>',
    close: '</think>',
    marks: ['<response>'],
    ignored: ['<response>', '</response>'],
  },
  { open: '<think>', close: '</think>', marks: ['<think>', '</think>', '<|tool_list_start|>'] },
];

/** Undefined for a template without reasoning. */
export function reasoningFormatOf(source: string): ReasoningFormat | undefined {
  return reasoningFormats.find(({ marks }) => marks.some((mark) => source.includes(mark)));
}
