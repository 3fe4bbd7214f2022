/**
 * Draws cached positions as one SVG: a row per layer and KV head, positions to the right. Runs of equal color are one
 * rectangle.
 */
import type { CachedMap } from '../attention/cached-map.js';
import { escapeXml } from './escape-xml.js';

export interface DrawCachedOptions {
  readonly title: string;
  readonly maps: readonly CachedMap[];
}

const left = 96;
const top = 64;
const rowHeight = 12;
const chartWidth = 768;

/** Colors by share: none, up to 1/16, 1/8, 1/4, 1/2, 1; the first is not drawn. */
const bounds = [0, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1] as const;
const colors = ['#f4f4f4', '#d4e4f2', '#9ecae1', '#4a98c9', '#1764ab', '#08306b'] as const;

/** Returns a complete SVG document. */
export function drawCachedMaps({ title, maps }: DrawCachedOptions): string {
  const width = left + chartWidth + 24;
  const height = top + maps.length * rowHeight + 40;
  const { shares, tokensPerCell } = maps[0] ?? { shares: new Float32Array(1), tokensPerCell: 1 };
  const numTokens = shares.length * tokensPerCell;
  const rows = maps.map((map, index) => drawRow(map, top + index * rowHeight, maps[index - 1]?.layer));
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((part) => {
    const x = left + part * chartWidth;
    const y = top + maps.length * rowHeight;
    return (
      `<path d="M${x} ${y}v4" stroke="#888888"/>` +
      `<text x="${x}" y="${y + 16}" text-anchor="middle">${Math.round(part * numTokens)}</text>`
    );
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" ` +
      `viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="9">`,
    `<title>${escapeXml(title)}</title>`,
    `<rect width="${width}" height="${height}" fill="#ffffff"/>`,
    `<text x="12" y="22" font-size="14">${escapeXml(title)}</text>`,
    legend(),
    ...rows,
    ...ticks,
    `<text x="${left + chartWidth / 2}" y="${height - 6}" text-anchor="middle">position</text>`,
    '</svg>\n',
  ].join('\n');
}

function legend(): string {
  const items = colors.map((color, i) => {
    const text = i === 0 ? 'never' : `up to ${bounds[i] === 1 ? 'always' : `1/${1 / (bounds[i] as number)}`}`;
    const x = left + i * 84;
    return `<rect x="${x}" y="34" width="10" height="10" fill="${color}"/><text x="${x + 14}" y="43">${text}</text>`;
  });
  return `<g><text x="12" y="43">cached</text>${items.join('')}</g>`;
}

function drawRow({ layer, head, shares }: CachedMap, y: number, layerAbove: number | undefined): string {
  const paths = new Map<number, string[]>();
  const scale = chartWidth / shares.length;
  for (let begin = 0; begin < shares.length;) {
    const level = levelOf(shares[begin] as number);
    let end = begin + 1;
    while (end < shares.length && levelOf(shares[end] as number) === level) end++;
    if (level >= 0) {
      const list = paths.get(level) ?? [];
      const x = +(left + begin * scale).toFixed(2);
      list.push(`M${x} ${y}h${+((end - begin) * scale).toFixed(2)}v${rowHeight - 1}H${x}z`);
      paths.set(level, list);
    }
    begin = end;
  }
  const caption = `${layer === layerAbove ? '' : `layer ${layer ?? '?'}, `}head ${head}`;
  const runs = [...paths].map(([level, list]) => `<path fill="${colors[level] as string}" d="${list.join('')}"/>`);
  return `<text x="${left - 6}" y="${y + rowHeight - 3}" text-anchor="end">${caption}</text>${runs.join('')}`;
}

/** Index of the color; -1 where no token could be cached. */
function levelOf(share: number): number {
  return Number.isNaN(share) ? -1 : bounds.findIndex((bound) => share <= bound + 1e-6);
}
