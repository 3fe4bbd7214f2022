/** Consent to calls: nothing runs without it. */

/** A call that the model wants to make. */
export interface CallRequest {
  /** As the server calls itself, and its command or URL. */
  readonly server: { readonly name: string; readonly address: string };
  /** As the model knows it. */
  readonly tool: string;
  readonly arguments: Readonly<Record<string, unknown>>;
}

/** Yes and no are for one call, `always` is for the tool as long as its definition is the same. */
export type Consent = 'yes' | 'no' | 'always';

/** Characters that are not seen, or change how others are shown: controls, directions, joiners, fillers, line separators. */
const hidden = /(?![\n\t])[\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}\p{Zl}\p{Zp}]/gu;

/** The text with everything hidden as an escape, such as `\u009b` or `\u{202e}`; line ends and tabs stay. */
export function visibleText(text: string): string {
  return text.replaceAll(hidden, (character) => {
    const code = (character.codePointAt(0) as number).toString(16);
    return code.length <= 2 ? `\\u${code.padStart(4, '0')}` : `\\u{${code}}`;
  });
}

/** What a question to the user shows. */
export interface CallText {
  readonly tool: string;
  /** The server's own name in quotes, and its address. */
  readonly server: string;
  /** JSON with an indentation of two spaces: what the user agrees to is never shortened. */
  readonly arguments: string;
}

/** The whole call with nothing hidden. */
export function callText({ server, tool, arguments: values }: CallRequest): CallText {
  return {
    tool: visibleText(tool),
    server: visibleText(`${JSON.stringify(server.name)} (${server.address})`),
    arguments: visibleText(JSON.stringify(values, undefined, 2)),
  };
}
