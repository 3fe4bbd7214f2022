/** Builds SentencePiece normalization tables for tests; see `cases.ts`. */

interface TrieNode {
  readonly children: Map<number, TrieNode>;
  value: number;
}

/** A double-array trie and its replacements, from source text to replacement. */
export function buildCharsmap(mapping: Readonly<Record<string, string>>): Uint8Array {
  const encoder = new TextEncoder();
  const root: TrieNode = { children: new Map(), value: -1 };
  const replacements: number[] = [];
  for (const [source, replacement] of Object.entries(mapping)) {
    let node = root;
    for (const byte of encoder.encode(source)) {
      let child = node.children.get(byte);
      if (child === undefined) node.children.set(byte, (child = { children: new Map(), value: -1 }));
      node = child;
    }
    node.value = replacements.length;
    replacements.push(...encoder.encode(replacement), 0);
  }
  const units = new Map<number, number>([[0, 0]]);
  const place = (node: TrieNode, position: number): void => {
    const labels = [...node.children.keys(), ...(node.value >= 0 ? [0] : [])];
    let offset = 1;
    while (labels.some((label) => units.has(position ^ offset ^ label))) offset++;
    for (const label of labels) units.set(position ^ offset ^ label, label);
    if (node.value >= 0) units.set(position ^ offset, node.value + 0x80000000);
    units.set(position, units.get(position)! + offset * 1024 + (node.value >= 0 ? 256 : 0));
    for (const [label, child] of node.children) place(child, position ^ offset ^ label);
  };
  place(root, 0);
  const size = (Math.max(...units.keys()) | 255) + 1;
  const table = new Uint8Array(4 + 4 * size + replacements.length);
  const view = new DataView(table.buffer);
  view.setUint32(0, 4 * size, true);
  for (const [position, unit] of units) view.setUint32(4 + 4 * position, unit, true);
  table.set(replacements, 4 + 4 * size);
  return table;
}

/** A table with spaces, ligatures, decomposition, removal, and a longer and a shorter match. */
export function testCharsmap(): Uint8Array {
  return buildCharsmap({
    ...{ '\t': ' ', '\n': ' ', '\r': ' ', '\u00a0': ' ', '\u3000': ' ', '\u0085': ' ', '\ufb00': 'ff', '\uff21': 'A' },
    ...{ '\u00e9': 'e\u0301', '\u00bd': '1/2', '\u200b': '', '\u2460': '1', '\u0152': 'OE', ab: 'X', abc: 'Y' },
  });
}
