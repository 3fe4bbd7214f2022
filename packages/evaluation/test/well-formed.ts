/** Checks that text is well-formed XML without declarations. */

const tag = /<(\/?)([A-Za-z][\w:-]*)((?:\s+[\w:-]+\s*=\s*(?:"[^"<]*"|'[^'<]*'))*)\s*(\/?)>/y;

/** @throws {Error} that names the place of the error */
export function checkWellFormed(svg: string): void {
  const open: string[] = [];
  let numRoots = 0;
  const plain = svg.replaceAll(/<!\[CDATA\[.*?\]\]>/gs, '');
  for (let at = 0; at < plain.length;) {
    const next = plain.indexOf('<', at);
    const text = plain.slice(at, next === -1 ? plain.length : next);
    if (/&(?!(amp|lt|gt|quot|apos|#\d+|#x[\da-f]+);)|>/i.test(text)) throw new Error(`SVG: bad text at ${at}`);
    if (open.length === 0 && text.trim() !== '') throw new Error(`SVG: text outside the root at ${at}`);
    if (next === -1) break;
    tag.lastIndex = next;
    const match = tag.exec(plain);
    if (match === null) throw new Error(`SVG: bad tag at ${next}: ${plain.slice(next, next + 40)}`);
    const [whole, closing, name, attributes, empty] = match;
    if (/&(?!(amp|lt|gt|quot|apos|#\d+|#x[\da-f]+);)/i.test(attributes))
      throw new Error(`SVG: bad attribute at ${next}`);
    if (closing === '/') {
      if (open.pop() !== name) throw new Error(`SVG: </${name}> closes nothing at ${next}`);
    } else {
      if (open.length === 0 && ++numRoots > 1) throw new Error(`SVG: a second root at ${next}`);
      if (empty !== '/') open.push(name);
    }
    at = next + whole.length;
  }
  if (open.length > 0 || numRoots === 0) throw new Error(`SVG: ends inside <${open.at(-1)}>`);
}
