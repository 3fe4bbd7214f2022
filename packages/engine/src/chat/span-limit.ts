/** A limit on the first span of a text between two marks. */
export interface SpanLimit {
  /** Begins the span. Default: the text begins inside of it. */
  readonly begin?: string;
  /** Ends the span; generated in place of other tokens once the limit is reached. */
  readonly end: string;
  /** Maximum number of tokens before the end. */
  readonly maxTokens: number;
}
