/** Consent to calls: nothing runs without it. */

/** A call that the model wants to make. */
export interface CallRequest {
  /** The server's own name, and its command or URL. */
  readonly server: { readonly name: string; readonly address: string };
  /** The name by which the model knows the tool. */
  readonly tool: string;
  readonly arguments: Readonly<Record<string, unknown>>;
}

/** `yes` and `no` apply to one call; `always` applies to the tool as long as its definition does not change. */
export type Consent = 'yes' | 'no' | 'always';

/** Characters that are invisible or change how others are displayed: controls, directions, joiners, fillers, line separators. */
const hidden = /(?![\n\t])[\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}\p{Zl}\p{Zp}]/gu;

/** Replaces hidden characters by escapes such as `\u009b` or `\u{202e}`; line breaks and tabs stay. */
export function visibleText(text: string): string {
  return text.replaceAll(hidden, (character) => {
    const code = (character.codePointAt(0) as number).toString(16);
    return code.length <= 2 ? `\\u${code.padStart(4, '0')}` : `\\u{${code}}`;
  });
}

/** The text of a question to the user. */
export interface CallText {
  readonly tool: string;
  /** The server's own name in quotes, and its address. */
  readonly server: string;
  /** JSON with an indentation of two spaces: what the user agrees to is never shortened. */
  readonly arguments: string;
}

/** The complete call without hidden characters. */
export function callText({ server, tool, arguments: values }: CallRequest): CallText {
  return {
    tool: visibleText(tool),
    server: visibleText(`${JSON.stringify(server.name)} (${server.address})`),
    arguments: visibleText(JSON.stringify(values, undefined, 2)),
  };
}
