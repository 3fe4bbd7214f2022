/** Text as content of an SVG element. */
export function escapeXml(text: string): string {
  // control characters have no place in XML 1.0
  const clean = Array.from(text, (c) => (c < ' ' || c === '\u{fffe}' || c === '\u{ffff}' ? ' ' : c)).join('');
  return clean.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
}
