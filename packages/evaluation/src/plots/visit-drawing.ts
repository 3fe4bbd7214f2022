/**
 * Draws visit maps as one SVG, a panel per head. Cells are drawn as runs of equal color, so that a panel takes
 * kilobytes; a plotting library would write a rectangle for every cell.
 */
import type { VisitMap } from '../attention/visit-map.js';
import { escapeXml } from './escape-xml.js';

export interface DrawVisitsOptions {
  readonly title: string;
  readonly maps: readonly VisitMap[];
  /** Number of panels per row. Default: the number of heads of the first layer, at most six. */
  readonly columns?: number;
}

const panelSize = 176;
const gap = 18;
const captionHeight = 30;
const headHeight = 74;

/** Levels of mass: powers of 1/4 of a query's total mass. */
const levels = [1 / 4, 1 / 16, 1 / 64, 1 / 256] as const;
const visitedColors = ['#08306b', '#2171b5', '#6baed6', '#b8d4ea', '#e6eef6'] as const;
const missedColors = ['#7f0000', '#d7301f', '#fc8d59', '#fdd0a2'] as const;
const summarizedColor = '#d9ead3';

/** Returns a complete SVG document. */
export function drawVisits({ title, maps, columns = defaultColumns(maps) }: DrawVisitsOptions): string {
  const numRows = Math.ceil(maps.length / columns);
  const width = Math.max(760, gap + columns * (panelSize + gap));
  const height = headHeight + numRows * (panelSize + captionHeight + gap);
  const panels = maps.map((map, i) => {
    const x = gap + (i % columns) * (panelSize + gap);
    const y = headHeight + Math.floor(i / columns) * (panelSize + captionHeight + gap);
    return panel(map, x, y);
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" ` +
      `viewBox="0 0 ${width} ${height}" font-family="sans-serif">`,
    `<title>${escapeXml(title)}</title>`,
    `<rect width="${width}" height="${height}" fill="#ffffff"/>`,
    `<text x="${gap}" y="24" font-size="14">${escapeXml(title)}</text>`,
    legend(),
    ...panels,
    '</svg>\n',
  ].join('\n');
}

function defaultColumns(maps: readonly VisitMap[]): number {
  const inFirst = maps.filter(({ name }) => name === maps[0]?.name).length;
  return Math.max(1, Math.min(6, inFirst));
}

function legend(): string {
  const items: [color: string, text: string][] = [
    [visitedColors[0], 'visited, over a quarter of the mass'],
    [visitedColors[2], 'visited, little mass'],
    [summarizedColor, 'only in a landmark'],
    [missedColors[1], 'not visited, although dense attention puts mass there'],
  ];
  let x = gap;
  const parts = items.map(([color, text]) => {
    const part = `<rect x="${x}" y="36" width="10" height="10" fill="${color}"/><text x="${x + 14}" y="45">${text}</text>`;
    x += 22 + 4.9 * text.length;
    return part;
  });
  const about =
    `<text x="${gap}" y="62" fill="#555555">Each panel: queries downwards, keys to the right; both from the ` +
    'first token to the last.</text>';
  return `<g font-size="9">${parts.join('')}${about}</g>`;
}

function panel(map: VisitMap, x: number, y: number): string {
  const { size, name, head, pairs, densePairs, mass } = map;
  const scale = panelSize / size;
  const runs = new Map<string, string[]>();
  for (let row = 0; row < size; row++) {
    for (let begin = 0; begin <= row;) {
      const color = colorOf(map, row * size + begin);
      let end = begin + 1;
      while (end <= row && colorOf(map, row * size + end) === color) end++;
      if (color !== undefined) {
        const list = runs.get(color) ?? [];
        list.push(`M${begin} ${row}h${end - begin}v1H${begin}z`);
        runs.set(color, list);
      }
      begin = end;
    }
  }
  const paths = [...runs].map(([color, list]) => `<path fill="${color}" d="${list.join('')}"/>`);
  const caption = `${name}, head ${head}`;
  const figures = `${share(pairs / densePairs)} of the pairs, ${share(mass)} of the mass`;
  return [
    `<g transform="translate(${x} ${y})">`,
    `<rect width="${panelSize}" height="${panelSize}" fill="#fafafa" stroke="#bbbbbb" stroke-width="0.5"/>`,
    `<g transform="scale(${+scale.toFixed(5)})" shape-rendering="crispEdges">${paths.join('')}</g>`,
    `<text y="${panelSize + 12}" font-size="10">${escapeXml(caption)}</text>`,
    `<text y="${panelSize + 24}" font-size="9" fill="#555555">${figures}</text>`,
    '</g>',
  ].join('\n');
}

/** Where missed mass exceeds visited mass, it determines the color. */
function colorOf({ visited, summarized, visitedMass, missedMass }: VisitMap, cell: number): string | undefined {
  const missed = levelOf(missedMass[cell]);
  if (missed < levels.length && missedMass[cell] > visitedMass[cell]) return missedColors[missed];
  if (visited[cell] > 0) return visitedColors[levelOf(visitedMass[cell])];
  return summarized[cell] > 0 ? summarizedColor : undefined;
}

/** Index of the first level reached; `levels.length` for none. */
function levelOf(mass: number): number {
  const level = levels.findIndex((bound) => mass >= bound);
  return level === -1 ? levels.length : level;
}

function share(value: number): string {
  return `${(100 * value).toFixed(1)}%`;
}
