/** Prompts and options that tests of many models share. */

/** Texts without randomness, which end only by `maxTokens`. */
export const greedy = { temperature: 0, ignoreEos: true } as const;

/** A prompt of this many tokens; another `step` gives another one. */
export function ids(length: number, step = 7): number[] {
  return Array.from({ length }, (_, index) => (index * step) % 300);
}
