/** What an answer of a model consists of: text, reasoning and tool calls. */

/**
 * A part of an answer. Parts arrive in the order of the text: consecutive parts of type `text` belong to one text, and
 * so do those of type `reasoning`. A call begins with `tool-call-start`, goes on with any number of `tool-call-delta`,
 * and ends with `tool-call` before anything else follows.
 */
export type ChatPart = TextPart | ReasoningPart | ToolCallStart | ToolCallDelta | ToolCallPart;

/** A piece of the answer itself. */
export interface TextPart {
  readonly type: 'text';
  readonly text: string;
}

/** A piece of the model's reasoning, without the marks around it. */
export interface ReasoningPart {
  readonly type: 'reasoning';
  readonly text: string;
}

/** A call begins: its name is known. */
export interface ToolCallStart {
  readonly type: 'tool-call-start';
  readonly id: string;
  readonly name: string;
}

/** A piece of a call's arguments. The pieces of a call make up the `arguments` of its `ToolCallPart`. */
export interface ToolCallDelta {
  readonly type: 'tool-call-delta';
  readonly id: string;
  readonly arguments: string;
}

/** A call that has ended. */
export interface ToolCallPart {
  readonly type: 'tool-call';
  readonly id: string;
  readonly name: string;
  /** JSON text of an object, if the call is complete. */
  readonly arguments: string;
  /** False when the answer ended inside the call, for example because of `maxTokens`. */
  readonly isComplete: boolean;
}

/** Splits a streamed answer into its parts. The parts do not depend on how the text is cut into pieces. */
export interface ChatReader {
  /** Takes the next piece of text and returns the parts that are certain. */
  push(text: string): readonly ChatPart[];
  /** Ends the answer and returns the rest. */
  end(): readonly ChatPart[];
}
