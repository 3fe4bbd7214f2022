/** A format or an entry point whose inputs come from strangers. */
import type { Random } from '@winnow/test-utils';

export interface Target {
  /** Valid inputs that mutations start from, besides the corpus. */
  readonly examples: readonly Uint8Array[];
  /** A changed input that still looks like one of the format. */
  mutate(random: Random, input: Uint8Array): Uint8Array;
  /** Handles an input as a program would. Errors other than `WinnowError` are findings. */
  run(input: Uint8Array): Promise<void>;
}

/** The export of a target's file. */
export type CreateTarget = () => Promise<Target>;

export const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);
export const textOf = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);
