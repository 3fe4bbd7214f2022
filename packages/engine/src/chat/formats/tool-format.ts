/** What a format of tool calls consists of. */
import type { LiteralShape, NamedShape, TaggedShape } from './call-shapes.js';

/** The family of a format, named by the model that brought it. */
export type ToolFormat =
  | 'apertus'
  | 'apriel'
  | 'command-r'
  | 'command-r7b'
  | 'deepseek-r1'
  | 'deepseek-v3.1'
  | 'deepseek-v3.2'
  | 'deepseek-v4'
  | 'firefunction'
  | 'functionary-v3.1'
  | 'functionary-v3.2'
  | 'gemma4'
  | 'generic'
  | 'gigachat3'
  | 'gigachat3.1'
  | 'glm4.5'
  | 'granite'
  | 'harmony'
  | 'hermes'
  | 'kimi-k2'
  | 'lfm2'
  | 'lfm2.5'
  | 'llama'
  | 'minimax'
  | 'mistral'
  | 'mistral-args'
  | 'mistral-call-id'
  | 'nemotron-v2'
  | 'phi4'
  | 'qwen3-coder'
  | 'seed-oss';

/** What a section of calls contains between its opening and closing marks. */
export type CallShape =
  /** JSON objects with a name and arguments. */
  | { readonly kind: 'json' }
  | ({ readonly kind: 'named' } & NamedShape)
  | ({ readonly kind: 'tagged' } & TaggedShape)
  | ({ readonly kind: 'literal' } & LiteralShape)
  /** The whole answer consists of messages with headers. */
  | { readonly kind: 'harmony' }
  | { readonly kind: 'recipients' };

/**
 * Calls as the model writes them. `{name}`, `{arguments}`, `{index}` (a number) and `{id}` (nine letters and digits)
 * are placeholders.
 */
export interface WrittenCalls {
  /** Text that a call follows. Default: none. */
  readonly start?: string;
  readonly before: string;
  readonly call: string;
  readonly between: string;
  readonly after: string;
  /** An answer can have only one call. */
  readonly isSingle?: boolean;
}

export interface ToolFormatRow {
  readonly name: ToolFormat;
  /** A template has all of these. */
  readonly marks: readonly string[];
  /** Texts that begin a section of calls. `{name}` stands for the name of each tool. */
  readonly opens: readonly string[];
  /** The opening texts are a part of what follows. */
  readonly keepsOpen?: boolean;
  /** Texts that begin calls only where an answer begins; they are a part of what follows. */
  readonly startOpens?: readonly string[];
  /** Ends a section; it may also end with the answer. */
  readonly closes: readonly string[];
  /** Begins several sections. */
  readonly sectionOpen?: string;
  /** Texts around sections that are not part of the answer. */
  readonly ignored?: readonly string[];
  /** Only its members show that an object is a call. */
  readonly isBare?: boolean;
  /** An id may follow the arguments, so that a call begins when all of it is known. */
  readonly hasIdAfterArguments?: boolean;
  readonly shape: CallShape;
  readonly written: WrittenCalls;
}
