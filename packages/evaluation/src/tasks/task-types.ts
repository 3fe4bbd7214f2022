/** Recall tasks as plain data: the text that a model reads and the questions that follow. */

/** Kinds of tasks. All answers are in the text; none needs world knowledge. */
export const taskNames = [
  'needle',
  'multi-key',
  'multi-value',
  'multi-query',
  'passkey',
  'variable-tracking',
  'common-words',
  'frequent-words',
  'hard-negatives',
] as const;

export type TaskName = (typeof taskNames)[number];

/** Wording: `codes` is what the demo model was trained on, `general` is for models that read English. */
export type TaskForm = 'codes' | 'general';

/** A question with one correct continuation. */
export interface RecallQuestion {
  /** The question text, which ends just before the answer. */
  readonly prompt: string;
  /** The answer as it continues the prompt, usually with a leading space. */
  readonly answer: string;
}

/** A question that ranks words by their probability as the next token. */
export interface RankQuestion {
  readonly prompt: string;
  /** Right words, and wrong words that also occur in the text; each with its leading space. */
  readonly right: readonly string[];
  readonly wrong: readonly string[];
}

/** One text with questions that are asked one after another on the same cache. */
export interface RecallCase {
  readonly task: TaskName;
  readonly context: string;
  readonly questions: readonly (RecallQuestion | RankQuestion)[];
}

export interface RecallCaseOptions {
  readonly task: TaskName;
  readonly form: TaskForm;
  /** Approximate number of tokens of the text. */
  readonly length: number;
  readonly seed: number;
  readonly countTokens: (text: string) => number;
}
