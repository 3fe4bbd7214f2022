/** Escapes text for an SVG element. */
export function escapeXml(text: string): string {
  // XML 1.0 does not allow control characters
  const clean = Array.from(text, (c) => (c < ' ' || c === '\u{fffe}' || c === '\u{ffff}' ? ' ' : c)).join('');
  return clean.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
}
