/** The picture of the packages in layers, drawn from layers.json and the workspace. */
import type { WorkspacePackage } from '../workspace/workspace.ts';

export interface LayerList {
  /** Lowest first. */
  readonly layers: readonly (readonly string[])[];
  readonly dev: readonly string[];
  /** Titles of the layers in the picture, lowest first. */
  readonly titles: readonly string[];
}

const fills = ['#e4e7ea', '#e9e4f3', '#f6e3e0', '#fdf3d8', '#e2f0ec', '#dcebf5', '#f3e8f0', '#e3ebf0', '#e8f1e4'];
const [width, left, right, maxPerRow] = [960, 150, 20, 5];
const [boxHeight, gap, layerGap] = [36, 8, 14];

/**
 * SVG with one band per layer, the highest on top. Packages in layers.json that the workspace lacks are dashed.
 * @throws {Error} when layers and titles differ in number
 */
export function drawLayers({ layers, dev, titles }: LayerList, packages: readonly WorkspacePackage[]): string {
  if (titles.length !== layers.length)
    throw new Error(`${layers.length} layers, ${titles.length} titles in layers.json`);
  const known = new Set(packages.map(({ shortName }) => shortName));
  const parts: string[] = [];
  let top = 20;
  const band = (title: string, names: readonly string[], fill: string): void => {
    const numRows = Math.ceil(names.length / maxPerRow);
    const perRow = Math.ceil(names.length / numRows);
    const boxWidth = (width - left - right - gap * (perRow - 1)) / perRow;
    parts.push(text(20, top + boxHeight / 2 + 5, 'start', title, ' font-weight="bold" fill="#5a6b78"'));
    names.forEach((name, index) => {
      const x = left + (index % perRow) * (boxWidth + gap);
      const y = top + Math.floor(index / perRow) * (boxHeight + gap);
      const dash = known.has(name) ? '' : ' stroke-dasharray="6 4"';
      parts.push(
        `<rect x="${round(x)}" y="${y}" width="${round(boxWidth)}" height="${boxHeight}" rx="6" fill="${fill}" stroke="#30506b"${dash}/>`,
        text(round(x + boxWidth / 2), y + boxHeight / 2 + 5, 'middle', name, ' fill="#132330"'),
      );
    });
    top += numRows * (boxHeight + gap) - gap + layerGap;
  };
  for (let layer = layers.length - 1; layer >= 0; layer--) {
    band(titles[layer] ?? '', layers[layer] ?? [], fills[layer % fills.length] ?? '');
  }
  parts.push(
    text(left, top + 14, 'start', 'Imports go down only, never within a layer. Dashed: planned.', ' fill="#5a6b78"'),
  );
  top += 34;
  band('in tests only', dev, '#ffffff');
  const label = 'Packages of Winnow in layers; imports go down only';
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${top + 6}" ` +
      `font-family="Helvetica, Arial, sans-serif" font-size="14" role="img" aria-label="${label}">`,
    `<rect width="${width}" height="${top + 6}" fill="#ffffff"/>`,
    ...parts,
    '</svg>',
    '',
  ].join('\n');
}

function text(x: number, y: number, anchor: string, content: string, attributes: string): string {
  return `<text x="${x}" y="${y}" text-anchor="${anchor}"${attributes}>${content}</text>`;
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
