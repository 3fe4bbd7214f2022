/** A row of the table of budgets. */
export interface Budget {
  readonly name: string;
  readonly value: number;
  readonly limit: number;
  /** Where the value was found. */
  readonly place: string;
}
