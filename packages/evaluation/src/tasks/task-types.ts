/** Recall tasks as plain data: what a model reads, and what it is asked afterwards. */

/** What is asked. All answers are in the text; none needs knowledge. */
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

/** A question with one right continuation. */
export interface RecallQuestion {
  /** Ends just before the answer. */
  readonly prompt: string;
  /** Begins as the prompt asks for: mostly with a space. */
  readonly answer: string;
}

/** A question about many words: which of them are likely to be next. */
export interface RankQuestion {
  readonly prompt: string;
  /** Words that are right, and words that are in the text too but wrong; each with its leading space. */
  readonly right: readonly string[];
  readonly wrong: readonly string[];
}

/** One text with questions that are asked one after the other on the same cache. */
export interface RecallCase {
  readonly task: TaskName;
  readonly context: string;
  readonly questions: readonly (RecallQuestion | RankQuestion)[];
}

export interface RecallCaseOptions {
  readonly task: TaskName;
  readonly form: TaskForm;
  /** Tokens of the text, about. */
  readonly length: number;
  readonly seed: number;
  readonly countTokens: (text: string) => number;
}
