/** Consent to calls: nothing runs without it. */
import { printable } from '../../errors/printable.js';

/** A call that the model wants to make. */
export interface CallRequest {
  /** As the server calls itself, and its command or URL. */
  readonly server: { readonly name: string; readonly address: string };
  readonly tool: string;
  readonly arguments: Readonly<Record<string, unknown>>;
}

/** Yes and no are for one call, `always` is for the tool until the chat ends. */
export type Consent = 'yes' | 'no' | 'always';

const answers: ReadonlyMap<string, Consent> = new Map([
  ['y', 'yes'],
  ['yes', 'yes'],
  ['n', 'no'],
  ['no', 'no'],
  ['a', 'always'],
  ['always', 'always'],
]);

/** Undefined for anything but an answer, so that the question is asked again. */
export function consentOf(line: string): Consent | undefined {
  return answers.get(line.trim().toLowerCase());
}

/** Characters that are not seen, or change how a terminal shows others: directions, joiners, fillers, line separators. */
const invisible = /[\p{Cf}\p{Default_Ignorable_Code_Point}\p{Zl}\p{Zp}]/gu;

/** The text without anything hidden. */
function visible(text: string): string {
  return printable(text).replaceAll(invisible, (character) => `\\u{${character.codePointAt(0)?.toString(16)}}`);
}

/** The whole call: what the user agrees to is never shortened. */
export function requestText({ server, tool, arguments: values }: CallRequest): string {
  const from = `${JSON.stringify(server.name)} (${server.address})`;
  return visible(
    `The model wants to call ${tool} of the server ${from} with\n${JSON.stringify(values, undefined, 2)}\n`,
  );
}

export function questionText({ tool }: CallRequest): string {
  return visible(`Call ${tool}? y: yes, n: no, a: always in this chat > `);
}
