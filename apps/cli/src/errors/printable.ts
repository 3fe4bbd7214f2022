/** Text of files on terminals. */

/** Control characters other than tabs and line ends, which a terminal obeys no matter where they come from. */
// oxlint-disable-next-line no-control-regex
const controls = /[\u0000-\u0008\u000B\u000C\u000E-\u001F\u007F-\u009F]|\r(?!\n)/g;

/** The text with control characters as JSON writes them, `\u001b`, so that it cannot move the cursor or set the title. */
export function printable(text: string): string {
  return text.replaceAll(controls, (control) => `\\u${control.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
