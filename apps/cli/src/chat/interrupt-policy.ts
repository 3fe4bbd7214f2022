/** Ctrl-C in a chat: once stops the reply or clears the line, twice in a row exits. */
export interface InterruptActions {
  /** Stops the running reply; false when none is running. */
  readonly stopReply: () => boolean;
  readonly dropLine: () => void;
  readonly leave: () => void;
}

export class InterruptPolicy {
  readonly #actions: InterruptActions;
  #count = 0;

  constructor(actions: InterruptActions) {
    this.#actions = actions;
  }

  /** Any other input resets the count. */
  readonly onInput = (): void => {
    this.#count = 0;
  };

  readonly onInterrupt = (): void => {
    this.#count += 1;
    if (this.#count >= 2) this.#actions.leave();
    else if (!this.#actions.stopReply()) this.#actions.dropLine();
  };
}
