/** The address of a server for error messages: without user, password and options. */
export function sourceOf(url: string): string {
  const parsed = URL.parse(url);
  return parsed === null ? 'no URL' : `${parsed.protocol}//${parsed.host}${parsed.pathname}`;
}
